// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"regexp"
	"strconv"
)

var argumentName = regexp.MustCompile(`\barg(\d+)\b`)

// checkArguments fails if no site in the files that are named has an argument
// that is to be added up or to be a key. Single sites without it are left out.
func (t *tracer) checkArguments() error {
	if len(t.targets.selections) == 0 {
		return nil
	}
	most := 0
	for _, sel := range t.targets.selections {
		for i := range sel.Len() {
			most = max(most, len(sel.Site(i).Args))
		}
	}
	o := t.options
	for _, flag := range []struct {
		name  string
		terms []string
	}{{"--by", o.by}, {"--sum", []string{o.sum}}, {"--hist", []string{o.hist}}} {
		for _, term := range flag.terms {
			for _, name := range argumentName.FindAllStringSubmatch(term, -1) {
				if n, err := strconv.Atoi(name[1]); err != nil || n >= most {
					return fmt.Errorf("%s %s: no site has %s", flag.name, term, name[0])
				}
			}
		}
	}
	return nil
}

// warnCaptures names the arguments that are to be shown but that no site has.
func (t *tracer) warnCaptures() {
	sites, _ := t.targets.watched()
	if sites == 0 {
		return
	}
	for _, c := range t.options.captures {
		if c.number >= 0 && c.number >= t.targets.mostArguments() {
			t.messages.Warn("--%s %d: no site has %s", c.flag(), c.number, c.Arg)
		}
	}
}
