// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"cmp"
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

// flameGraph is what a page shows.
type flameGraph struct {
	Title string    `json:"title"`
	Type  string    `json:"type"` // of the values
	Unit  string    `json:"unit"`
	Note  string    `json:"note"` // what is to be known about them, "" for nothing
	Root  flameNode `json:"root"`
}

// flameNode is a function with those that it calls. Its value includes theirs.
type flameNode struct {
	Name     string       `json:"name"`
	Value    int64        `json:"value"`
	Lines    string       `json:"lines,omitempty"` // the source file with the lines that have most of the value
	Children []*flameNode `json:"children,omitempty"`

	byName map[string]*flameNode
	byLine map[string]int64
}

// child returns a function that this one calls, new or as it is known.
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

// shownLines are how many lines of a function a flame graph says.
const shownLines = 3

// sayLines sets the Lines of a function and of those below it: stacks are not
// deep, see maxDepth and maxInlined.
func (n *flameNode) sayLines() {
	lines := slices.SortedFunc(maps.Keys(n.byLine), func(a, b string) int {
		return cmp.Or(cmp.Compare(n.byLine[b], n.byLine[a]), cmp.Compare(a, b))
	})
	for i, line := range lines[:min(len(lines), shownLines)] {
		if i > 0 {
			// All are of one file, but for what macros include.
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
// be searched and zoomed. The page needs nothing else, no network either. What
// it shows is what WriteFolded writes.
func (p *Profile) WriteFlameGraph(w io.Writer, title string) error {
	p.complete()
	graph := flameGraph{Title: title, Root: flameNode{Name: "all"}}
	if n := len(p.out.SampleType); n > 0 {
		graph.Type, graph.Unit = p.out.SampleType[n-1].Type, p.out.SampleType[n-1].Unit
	}
	if p.Period > 0 {
		graph.Note = fmt.Sprintf("sampled, 1 in %d %s", p.Period, p.PeriodType.Type)
	}
	for _, s := range p.out.Sample {
		value := last(s)
		if value <= 0 {
			continue
		}
		node := &graph.Root
		node.Value += value
		for name, line := range namesOn(s) {
			node = node.child(name)
			node.Value += value
			if line != "" {
				if node.byLine == nil {
					node.byLine = make(map[string]int64)
				}
				node.byLine[line] += value
			}
		}
	}
	graph.Root.sayLines()
	// What is not UTF-8 is replaced, and no name can end the element of the
	// page that it stands in: < is escaped.
	shown, err := json.Marshal(&graph)
	if err != nil {
		return err
	}
	_, err = strings.NewReplacer("RENDERER_STYLE", flameGraphStyle, "RENDERER", flameGraphRenderer,
		"PROFILE", string(shown)).WriteString(w, flameGraphPage)
	return err
}
