// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/gousdt/gousdt/trace"
)

// term is what an attribute of a span or of a log record is: one of the terms
// of package trace, whose value the event has.
type term struct {
	source string // argument, text, or the name of another term
	start  bool   // of the hit that began the call
	arg    string // the argument's name
	length string // of a text: the argument that says its length, or ""
	max    int    // of a text: its limit, 0 for the default
	value  string // of a constant
}

const (
	argumentTerm = "argument"
	textTerm     = "text"
	constantTerm = "constant"

	// defaultText is how many bytes of a text are read where an expression says
	// nothing: a query is seldom longer.
	defaultText = 1024

	// defaultParentText is the same for a text that ends with the context of
	// the caller.
	defaultParentText = 8192
)

// eventTerms are the terms that are not arguments.
var eventTerms = []string{"pid", "tid", "comm", "cpu", "cgroup", "probe", "provider",
	"cookie", "duration"}

var (
	plainTerm  = regexp.MustCompile(`^(start\.)?([A-Za-z_]\w*)$`)
	quotedTerm = regexp.MustCompile(`^(?:'([^']*)'|"([^"]*)")$`)
	stringTerm = regexp.MustCompile(`^str\(\s*(start\.)?([A-Za-z_]\w*)\s*(?:,\s*(\w+)\s*)?\)$`)
)

// parseTerm reads a term. Only spans have a start.
func parseTerm(text string, span bool) (term, error) {
	text = strings.TrimSpace(text)
	if m := stringTerm.FindStringSubmatch(text); m != nil {
		t := term{source: textTerm, start: m[1] != "", arg: m[2]}
		switch n, err := strconv.Atoi(m[3]); {
		case m[3] == "":
		case err != nil:
			t.length = m[3]
		case n < 1 || n > maxText:
			return t, fmt.Errorf("%s: a text has from 1 to %d bytes", text, maxText)
		default:
			t.max = n
		}
		return t, t.check(text, span)
	}
	if m := quotedTerm.FindStringSubmatch(text); m != nil {
		return term{source: constantTerm, value: m[1] + m[2]}, nil
	}
	m := plainTerm.FindStringSubmatch(text)
	if m == nil {
		return term{}, fmt.Errorf(
			"%q is neither an argument, nor str(...) of one, nor a text in quotes, nor one of %s",
			text, strings.Join(eventTerms, ", "))
	}
	t := term{source: argumentTerm, start: m[1] != "", arg: m[2]}
	if m[1] == "" && slices.Contains(eventTerms, text) {
		t = term{source: text}
	}
	return t, t.check(text, span)
}

// maxText is the limit of package trace.
const maxText = 32 << 10

func (t term) check(text string, span bool) error {
	if !span && (t.start || t.source == "duration") {
		return fmt.Errorf("%s: only spans have a start and a duration", text)
	}
	return nil
}

// attribute is a term with its name.
type attribute struct {
	name string
	term term
}

func parseAttributes(all map[string]string, span bool) ([]attribute, error) {
	var parsed []attribute
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t, err := parseTerm(all[name], span)
		if err != nil {
			return nil, fmt.Errorf("attributes: %s: %w", name, err)
		}
		parsed = append(parsed, attribute{name, t})
	}
	return parsed, nil
}

// captures are what is read for terms: for each argument, as much as one of
// them needs.
func captures(terms []term) []trace.Capture {
	var all []trace.Capture
	for _, t := range terms {
		if t.source != textTerm {
			continue
		}
		limit := t.limit()
		i := slices.IndexFunc(all, func(c trace.Capture) bool { return c.Arg == t.arg })
		switch {
		case i < 0:
			all = append(all, trace.Capture{Arg: t.arg, Length: t.length, Max: limit})
		default:
			all[i].Max = max(all[i].Max, limit)
			if t.length == "" {
				all[i].Length = ""
			}
		}
	}
	return all
}

func (t term) limit() int {
	if t.max > 0 {
		return t.max
	}
	return defaultText
}

// argument returns an argument of a hit by its name.
func (t term) argument(e *trace.Event) (trace.Value, bool) {
	if t.start {
		e = e.Start
	}
	if e == nil || e.Site == nil {
		return trace.Value{}, false
	}
	for i := range e.Args {
		if t.isArgument(e.Site, i) {
			return e.Args[i], true
		}
	}
	return trace.Value{}, false
}

func (t term) isArgument(site *trace.Site, i int) bool {
	return t.arg == "arg"+strconv.Itoa(i) || t.arg == site.ArgumentName(i)
}

// isOf reports whether a site has the argument.
func (t term) isOf(site *trace.Site) bool {
	for i := range site.Args {
		if t.isArgument(site, i) {
			return true
		}
	}
	return false
}

// text returns the text that the term is about, and whether that is all of it.
func (t term) text(e *trace.Event) (text []byte, complete bool) {
	v, ok := t.argument(e)
	if !ok {
		return nil, false
	}
	text, complete = v.Data()
	if limit := t.limit(); len(text) > limit {
		return text[:limit], false
	}
	return text, complete
}

// put sets an attribute to the term's value at a hit, if there is one.
func (t term) put(to pcommon.Map, name string, e *trace.Event) {
	switch t.source {
	case argumentTerm:
		if v, ok := t.argument(e); ok {
			putValue(to, name, v)
		}
	case constantTerm:
		putText(to, name, t.value)
	case textTerm:
		if text, _ := t.text(e); text != nil {
			putText(to, name, text)
		}
	case "pid":
		putID(to, name, e.PID)
	case "tid":
		putID(to, name, e.TID)
	case "comm":
		putText(to, name, e.Command)
	case "cpu":
		to.PutInt(name, int64(e.CPU))
	case "cgroup":
		putValue(to, name, trace.ValueOf(e.CgroupID))
	case "probe":
		putText(to, name, e.Probe)
	case "provider":
		putText(to, name, e.Site.Provider)
	case "cookie":
		putValue(to, name, trace.ValueOf(e.Site.Cookie))
	case "duration":
		to.PutInt(name, e.Duration.Nanoseconds())
	}
}

// putID sets an attribute to the number of a process or a thread, unless it is
// of a PID namespace that the receiver does not see.
func putID(to pcommon.Map, name string, id int) {
	if id != 0 {
		to.PutInt(name, int64(id))
	}
}
