// SPDX-License-Identifier: BSD-2-Clause

// Package flamegraph writes a flame graph as a page of HTML that needs nothing
// else: no server, no network.
//
// The renderer is d3-flame-graph, bundled with the parts of d3 that it needs:
// `make renderer` bundles it anew. LICENSES.txt has the licences.
package flamegraph

import (
	"bytes"
	_ "embed"
	"io"

	"github.com/gousdt/gousdt/internal/jsontext"
)

//go:embed page.html
var page []byte

//go:embed renderer.js
var renderer []byte

//go:embed renderer.css
var style []byte

// Graph is what a page shows.
type Graph struct {
	Title      string
	Type, Unit string // of the values
	Note       string // what is to be known about the values, "" for nothing
	Root       Node
}

// Node is a function with those that it calls. Its value includes theirs.
type Node struct {
	Name     string
	Value    int64
	Children []*Node

	byName map[string]*Node
}

// Child returns a function that this one calls, new or as it is known.
func (n *Node) Child(name string) *Node {
	if c := n.byName[name]; c != nil {
		return c
	}
	if n.byName == nil {
		n.byName = make(map[string]*Node)
	}
	c := &Node{Name: name}
	n.byName[name] = c
	n.Children = append(n.Children, c)
	return c
}

// Write writes the page.
func (g *Graph) Write(w io.Writer) error {
	var j jsontext.Builder
	j.Begin('{')
	for _, member := range [][2]string{{"title", g.Title}, {"type", g.Type}, {"unit", g.Unit},
		{"note", g.Note}} {
		j.Key(member[0])
		j.String(member[1])
	}
	j.Key("root")
	g.Root.write(&j)
	j.End('}')
	// No name may end the element of the page that it stands in.
	profile := bytes.ReplaceAll(j.Bytes(), []byte("<"), []byte(`\u003c`))

	rest := page
	for _, part := range []struct {
		mark string
		text []byte
	}{{"RENDERER_STYLE", style}, {"RENDERER", renderer}, {"PROFILE", profile}} {
		before, after, _ := bytes.Cut(rest, []byte(part.mark))
		rest = after
		for _, text := range [][]byte{before, part.text} {
			if _, err := w.Write(text); err != nil {
				return err
			}
		}
	}
	_, err := w.Write(rest)
	return err
}

// write adds the node to a text. The depth of stacks is bounded.
func (n *Node) write(j *jsontext.Builder) {
	j.Begin('{')
	j.Key("name")
	j.String(n.Name)
	j.Signed("value", n.Value)
	if len(n.Children) > 0 {
		j.Key("children")
		j.Begin('[')
		for _, c := range n.Children {
			c.write(j)
		}
		j.End(']')
	}
	j.End('}')
}
