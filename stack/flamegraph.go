// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// The page of a flame graph. Its renderer is d3-flame-graph, bundled with the
// parts of d3 that it needs: `make renderer` bundles it anew.
// flamegraph/LICENSES.txt has the licences.
var (
	//go:embed flamegraph/page.html
	flameGraphPage string
	//go:embed flamegraph/renderer.js
	flameGraphRenderer string
	//go:embed flamegraph/renderer.css
	flameGraphStyle string
)

// flameGraph is the data of a page.
type flameGraph struct {
	Title string    `json:"title"`
	Type  string    `json:"type"` // of the values
	Unit  string    `json:"unit"` // of the values
	Note  string    `json:"note"` // about the values, such as how they were sampled; may be ""
	Root  flameNode `json:"root"`
}

// flameNode is a function with those that it calls. Its value includes theirs.
type flameNode struct {
	Name     string       `json:"name"`
	Value    int64        `json:"value"`
	Lines    string       `json:"lines,omitempty"` // source file, and its lines with most of the value
	Children []*flameNode `json:"children,omitempty"`

	byName map[string]*flameNode
	byLine map[string]int64
}

// child returns the node of a function that this one calls. It may be new.
func (n *flameNode) child(name string) *flameNode {
	c := n.byName[name]
	if c == nil {
		if n.byName == nil {
			n.byName = make(map[string]*flameNode)
		}
		c = &flameNode{Name: name}
		n.byName[name] = c
		n.Children = append(n.Children, c)
	}
	return c
}

// shownLines is the number of lines that a flame graph shows of a function.
const shownLines = 3

// sayLines sets the Lines of a function and of all below it. The recursion is
// shallow: maxDepth and maxInlined bound the depth of stacks.
func (n *flameNode) sayLines() {
	lines := slices.SortedFunc(maps.Keys(n.byLine), func(a, b string) int {
		return cmp.Or(cmp.Compare(n.byLine[b], n.byLine[a]), cmp.Compare(a, b))
	})
	for i, line := range lines[:min(len(lines), shownLines)] {
		if i > 0 {
			// All lines are of one file, unless a macro includes others.
			line = ", " + path.Base(line)
		}
		n.Lines += line
	}
	if len(lines) > shownLines {
		n.Lines += ", ..."
	}
	for _, child := range n.Children {
		child.sayLines()
	}
}

// WriteFlameGraph writes the profile as a page of HTML: a flame graph that can
// be searched and zoomed. The page needs no other file and no network. It shows
// the same stacks and values as WriteFolded. See [Profile.Write] for the
// context.
func (p *Profile) WriteFlameGraph(ctx context.Context, w io.Writer, title string) error {
	p.complete(ctx)
	graph := flameGraph{Title: title, Root: flameNode{Name: "all"}}
	if n := len(p.out.SampleType); n > 0 {
		graph.Type, graph.Unit = p.out.SampleType[n-1].Type, p.out.SampleType[n-1].Unit
	}
	if p.Period > 0 {
		graph.Note = fmt.Sprintf("sampled, 1 in %d %s", p.Period, p.PeriodType.Type)
	}
	lines := p.lines(ctx)
	for _, s := range p.out.Sample {
		value := last(s)
		if lines[lineOf(s)] <= 0 {
			continue
		}
		node := &graph.Root
		node.Value = addLimited(node.Value, value)
		for name, line := range namesOn(s) {
			node = node.child(name)
			node.Value = addLimited(node.Value, value)
			if line != "" {
				if node.byLine == nil {
					node.byLine = make(map[string]int64)
				}
				node.byLine[line] = addLimited(node.byLine[line], value)
			}
		}
	}
	graph.Root.sayLines()
	// Marshal escapes <, so that no name can end its element of the page, and
	// replaces invalid UTF-8.
	shown, err := json.Marshal(&graph)
	if err != nil {
		return err
	}
	_, err = strings.NewReplacer("RENDERER_STYLE", flameGraphStyle, "RENDERER", flameGraphRenderer,
		"PROFILE", string(shown)).WriteString(w, flameGraphPage)
	return err
}
