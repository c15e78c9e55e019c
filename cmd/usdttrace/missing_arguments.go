// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"debug/elf"
	"fmt"
	"regexp"
	"strconv"
)

var argumentName = regexp.MustCompile(`\barg(\d+)\b`)

// checkArguments fails if none of the files that are named has an argument that
// is to be shown, to be added up or to be a key. Single sites without it are
// left out.
func (t *tracer) checkArguments() error {
	if len(t.targets.selections) == 0 {
		return nil
	}
	o := t.options
	for _, flag := range []struct {
		name  string
		terms []string
	}{{"--by", o.by}, {"--sum", []string{o.sum}}, {"--hist", []string{o.hist}}} {
		for _, term := range flag.terms {
			for _, name := range argumentName.FindAllStringSubmatch(term, -1) {
				n, err := strconv.Atoi(name[1])
				if err == nil {
					err = t.targets.missing(n)
				}
				if err != nil {
					return fmt.Errorf("%s %s: %w", flag.name, term, err)
				}
			}
		}
	}
	for _, c := range o.captures {
		if c.number < 0 {
			continue // it has a name
		}
		if err := t.targets.missing(c.number); err != nil {
			return fmt.Errorf("--%s %d: %w", c.flag(), c.number, err)
		}
		if err := t.targets.noPointer(c.number); err != nil {
			t.messages.Warn("--%s %d: %v", c.flag(), c.number, err)
		}
	}
	return nil
}

// noPointer returns an error if an argument has the size of a pointer at no
// site of the files that are named: nothing would be shown of what it points
// to.
func (t *targets) noPointer(n int) (err error) {
	for _, sel := range t.selections {
		pointer := 8
		if sel.File().Class() == elf.ELFCLASS32 {
			pointer = 4
		}
		for _, site := range sel.Sites() {
			switch {
			case n >= len(site.Args):
			case site.Args[n].Size == pointer && !site.Args[n].Float:
				return nil
			default:
				err = fmt.Errorf("arg%d of %s:%s is no pointer: %s", n, cutName(site.Provider), cutName(site.Name), argumentType(&site.Args[n]))
			}
		}
	}
	return err
}

// missing returns why an argument is available at no site of the files that are
// named, nil if it is at one.
func (t *targets) missing(n int) error {
	err := fmt.Errorf("no site has arg%d", n)
	for _, sel := range t.selections {
		for _, site := range sel.Sites() {
			switch {
			case n >= len(site.Args):
			case site.Args[n].ReadableOn(sel.KernelMachine()):
				return nil
			case site.Args[n].Err != nil:
				err = fmt.Errorf("arg%d of %s:%s is not available: %w", n, cutName(site.Provider), cutName(site.Name), site.Args[n].Err)
			default:
				err = fmt.Errorf("arg%d of %s:%s is no number: %s", n, cutName(site.Provider), cutName(site.Name), site.Args[n])
			}
		}
	}
	return err
}

// warnCaptures names the arguments that are to be shown but that no site of
// what processes have mapped so far has.
func (t *tracer) warnCaptures() {
	sites, _ := t.targets.watched()
	if sites == 0 || len(t.targets.selections) > 0 {
		return
	}
	for _, c := range t.options.captures {
		if c.number >= 0 && c.number >= t.targets.mostArguments() {
			t.messages.Warn("--%s %d: no site has %s", c.flag(), c.number, c.Arg)
		}
	}
}
