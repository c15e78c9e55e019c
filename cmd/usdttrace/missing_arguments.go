// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"debug/elf"
	"fmt"
	"regexp"
	"strconv"

	"github.com/gousdt/gousdt/trace"
)

var argumentName = regexp.MustCompile(`\barg(\d+)\b`)

// term is a key, or a value that is aggregated.
type term struct{ flag, text string }

func (t term) String() string { return t.flag + " " + t.text }

func (o *options) terms() (all []term) {
	for _, by := range o.by {
		all = append(all, term{"--by", by})
	}
	for _, value := range []term{{"--sum", o.sum}, {"--hist", o.hist}} {
		if value.text != "" {
			all = append(all, value)
		}
	}
	return all
}

// checkArguments fails if none of the files that are named has an argument that
// is to be shown, to be added up or to be a key. Single sites without it are
// left out.
func (t *tracer) checkArguments() error {
	if len(t.targets.selections) == 0 {
		return nil
	}
	o := t.options
	for _, term := range o.terms() {
		for _, name := range argumentName.FindAllStringSubmatch(term.text, -1) {
			n, err := strconv.Atoi(name[1])
			if err == nil {
				err = t.targets.missing(n)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", term, err)
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
		if sel.File().Header().Class == elf.ELFCLASS32 {
			pointer = 4
		}
		for _, site := range sel.Sites() {
			switch {
			case n >= len(site.Args):
			case site.Args[n].Size == pointer && !site.Args[n].Float:
				return nil
			default:
				err = fmt.Errorf("arg%d of %s:%s is no pointer: %s", n, cutName(site.Provider),
					cutName(site.Name), argumentType(&site.Args[n]))
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
				err = fmt.Errorf("arg%d of %s:%s is not available: %w", n, cutName(site.Provider),
					cutName(site.Name), site.Args[n].Err)
			default:
				err = fmt.Errorf("arg%d of %s:%s is no number: %s", n, cutName(site.Provider),
					cutName(site.Name), site.Args[n])
			}
		}
	}
	return err
}

// addLacking keeps why a site lacks an argument of a term, unless another site
// has it.
func (t *targets) addLacking(site *trace.Site) {
	for _, term := range t.options.terms() {
		if err, known := t.lacking[term]; !known || err != nil {
			t.lacking[term] = term.lackingAt(site)
		}
	}
}

var word = regexp.MustCompile(`\w+`)

// lackingAt returns why an argument that the term names is not available at a
// site, nil if all are.
func (t term) lackingAt(site *trace.Site) error {
	for _, name := range word.FindAllString(t.text, -1) {
		n, isNumber := argumentNumber(name)
		for i := range site.Args {
			if !isNumber && site.ArgumentName(i) == name {
				n, isNumber = i, true
			}
		}
		switch {
		case !isNumber: // another word, or a name that the probe does not have
		case n >= len(site.Args):
			return fmt.Errorf("no site has %s", name)
		case site.Args[n].Err != nil:
			return fmt.Errorf("%s of %s:%s is not available: %w", name, cutName(site.Provider),
				cutName(site.Name), site.Args[n].Err)
		}
	}
	return nil
}

// lack returns what addLacking has kept for a term.
func (t *targets) lack(of term) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lacking[of]
}

// warnArguments names the arguments that are to be shown or aggregated but that
// no site of what processes have mapped so far has.
func (t *tracer) warnArguments() {
	sites, _ := t.targets.watched()
	if sites == 0 || len(t.targets.selections) > 0 {
		return
	}
	for _, term := range t.options.terms() {
		if err := t.targets.lack(term); err != nil {
			t.messages.Warn("%s: %v", term, err)
		}
	}
	for _, c := range t.options.captures {
		if c.number >= 0 && c.number >= t.targets.mostArguments() {
			t.messages.Warn("--%s %d: no site has %s", c.flag(), c.number, c.Arg)
		}
	}
}
