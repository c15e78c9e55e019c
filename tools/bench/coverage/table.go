// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"strings"
)

// counts says how many arguments are where they are expected.
type counts struct {
	right, wrong, refused int // of those that can be read
	invented, rightlyNot  int // of those that cannot
}

// A column is what came out of one project.
type column struct {
	project                  project
	right, missing, invented int // sites of the machine's files
	args                     int // arguments of these that it reads
	hasArgs                  bool
	groups                   []counts
	beside                   int // sites beside a malformed note
	thirteen                 string
	panics                   int
	peak                     int64
}

func (c *column) measure(w *work) error {
	r := &runner{project: c.project}
	for _, path := range w.files {
		answer, err := r.ask(path)
		if err != nil {
			return err
		}
		got := map[place]bool{}
		for _, s := range answer.Sites {
			got[place{s.Provider, s.Name, s.Offset, s.Semaphore}] = true
			for _, a := range s.Args {
				c.hasArgs = true
				if a.Kind != "none" && a.Kind != "bytes" {
					c.args++
				}
			}
		}
		for p := range w.sites[path] {
			if got[p] {
				c.right++
			} else {
				c.missing++
			}
		}
		c.invented += len(got) - len(intersection(got, w.sites[path]))
	}
	for _, g := range w.groups {
		found := counts{}
		for _, v := range g.files {
			answer, err := r.ask(v.path)
			if err != nil {
				return err
			}
			found.add(v.expected, answer)
		}
		c.groups = append(c.groups, found)
	}
	answer, err := r.ask(w.malformed)
	if err != nil {
		return err
	}
	c.beside = len(answer.Sites)
	if answer, err = r.ask(w.thirteen); err != nil {
		return err
	}
	switch {
	case answer.Panic != "":
		c.thirteen = "panic"
	case len(answer.Sites) == 0:
		c.thirteen = "refused"
	default:
		c.thirteen = fmt.Sprint(len(answer.Sites[0].Args))
	}
	for _, path := range w.damaged {
		answer, err := r.ask(path)
		if err != nil {
			return err
		}
		if answer.Panic != "" {
			c.panics++
		}
	}
	err = r.stop()
	c.peak = r.peak
	return err
}

func intersection(a, b map[place]bool) (both []place) {
	for p := range a {
		if b[p] {
			both = append(both, p)
		}
	}
	return both
}

// add counts the arguments of one vector.
func (c *counts) add(expected []argument, answer reply) {
	var args []argument
	if len(answer.Sites) == 1 {
		args = answer.Sites[0].Args
	}
	for i, want := range expected {
		got := argument{Kind: "none"}
		if i < len(args) && len(args) == len(expected) {
			got = args[i]
		}
		canRead := want.Kind != "none" && want.Kind != "bytes"
		isRead := got.Kind != "none" && got.Kind != "bytes"
		switch {
		case canRead && !isRead:
			c.refused++
		case canRead && got.isSame(want):
			c.right++
		case canRead:
			c.wrong++
		case isRead:
			c.invented++
		default:
			c.rightlyNot++
		}
	}
}

func (w *work) table(root string, columns []*column) string {
	var b strings.Builder
	row := func(title string, cell func(c *column) string) {
		fmt.Fprintf(&b, "| %s |", title)
		for _, c := range columns {
			text := "not run"
			if len(c.project.command) > 0 {
				text = cell(c)
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		b.WriteByte('\n')
	}
	sites := 0
	for _, s := range w.sites {
		sites += len(s)
	}
	fmt.Fprintf(&b, "From a run in %s on x86-64.\n\n", today())
	b.WriteString("| |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.project.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	row("version", func(c *column) string { return c.project.version })
	row(fmt.Sprintf("%d sites in %d files of %s: right, missing, invented", sites, len(w.files), root),
		func(c *column) string { return fmt.Sprintf("%d, %d, %d", c.right, c.missing, c.invented) })
	row("their arguments: read", func(c *column) string {
		if !c.hasArgs {
			return "-"
		}
		return fmt.Sprint(c.args)
	})
	for i, g := range w.groups {
		all := counts{}
		for _, v := range g.files {
			all.add(v.expected, reply{})
		}
		row(fmt.Sprintf("vectors, %s, %d arguments that can be read: right, refused, wrong", g.title, all.refused),
			func(c *column) string {
				if !c.hasArgs {
					return "-"
				}
				n := c.groups[i]
				return fmt.Sprintf("%d, %d, %d", n.right, n.refused, n.wrong)
			})
		row(fmt.Sprintf("%d that cannot: invented", all.rightlyNot), func(c *column) string {
			if !c.hasArgs {
				return "-"
			}
			return fmt.Sprint(c.groups[i].invented)
		})
	}
	row("2 sites beside a malformed note: listed", func(c *column) string { return fmt.Sprint(c.beside) })
	row("a probe of 13 arguments: decoded", func(c *column) string {
		if !c.hasArgs && c.thirteen != "panic" {
			return "-"
		}
		return c.thirteen
	})
	row(fmt.Sprintf("%d damaged files: ended by a panic, or by 4 GiB of memory", len(w.damaged)),
		func(c *column) string { return fmt.Sprint(c.panics) })
	row("most memory that was resident, MiB",
		func(c *column) string { return fmt.Sprintf("%.0f", float64(c.peak)/1024) })
	return b.String()
}
