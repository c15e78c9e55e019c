// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/internal/symbolname"
	"github.com/gousdt/gousdt/stack/internal/flamegraph"
)

// WriteFolded writes the profile as tools for flame graphs read it: a line for
// each stack, with the functions from the outermost on, divided by ';', and the
// last of its values. Labels come first, as if they were functions. Names are
// as in the source of C++ and Rust, without parameters; a function without a
// name is its file in brackets. Stacks of equal names are one line. Stacks
// with a value of 0 or less are left out.
func (p *Profile) WriteFolded(w io.Writer) error {
	lines := make(map[string]int64)
	for _, s := range p.samples {
		if value := s.last(); value > 0 {
			lines[strings.Join(s.names(), ";")] += value
		}
	}
	out := bufio.NewWriter(w)
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(out, "%s %d\n", line, lines[line])
	}
	return out.Flush()
}

// WriteFlameGraph writes the profile as a page of HTML: a flame graph that can
// be searched and zoomed. The page needs nothing else, no network either. What
// it shows is what WriteFolded writes.
func (p *Profile) WriteFlameGraph(w io.Writer, title string) error {
	graph := &flamegraph.Graph{Title: valid(title), Root: flamegraph.Node{Name: "all"}}
	if n := len(p.types); n > 0 {
		graph.Type, graph.Unit = valid(p.types[n-1].Type), valid(p.types[n-1].Unit)
	}
	if p.Period > 0 {
		graph.Note = fmt.Sprintf("sampled, 1 in %d %s", p.Period, valid(p.PeriodType.Type))
	}
	for _, s := range p.samples {
		value := s.last()
		if value <= 0 {
			continue
		}
		node := &graph.Root
		node.Value += value
		for _, name := range s.names() {
			node = node.Child(name)
			node.Value += value
		}
	}
	return graph.Write(w)
}

// last returns the value that is shown unless another one is asked for.
func (s *sample) last() int64 {
	if len(s.values) == 0 {
		return 0
	}
	return s.values[len(s.values)-1]
}

// names returns the labels and the names of the functions, the outermost first.
func (s *sample) names() []string {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(s.labels)) {
		names = append(names, folded(key+"="+s.labels[key]))
	}
	for i := len(s.places) - 1; i >= 0; i-- {
		names = append(names, folded(s.places[i].name()))
	}
	return names
}

// name returns what a flame graph shows of a place.
func (at *place) name() string {
	switch {
	case at.function != "":
		return symbolname.Readable(at.function)
	case at.at != nil:
		return "[" + filepath.Base(at.at.path) + "]"
	}
	return "[unknown]"
}

// folded returns a name without what divides names and lines.
func folded(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ';':
			return ':'
		case r < ' ' || r == 0x7f:
			return '?'
		}
		return r
	}, valid(name))
}
