// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"slices"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/providers"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// A Capture says that an argument is a pointer, and what to read there.
// [Value.Data] returns what was read.
type Capture struct {
	// Probes are the probes whose argument is meant; none stands for all probes
	// that have the argument. Of several captures for the same argument of a
	// probe the first one counts.
	Probes []elfnote.Pattern

	// Arg is the argument, named as in expressions: "arg0", or "query" if
	// SessionOptions.Definitions call it so. Nothing is read where it does not
	// have the size of a pointer, or is a floating point number.
	Arg string

	// Bytes says that the argument points to bytes, not to a text. That matters
	// for Value.String, and if there is no Length.
	Bytes bool

	// Length is the argument that says how many bytes there are, such as
	// "arg1". If it is negative at a hit, nothing is read. Without Length a
	// text ends before its first zero byte, and there are Max bytes.
	Length string

	// Max is how many bytes are read at most, from 1 to 32,768; 0 stands for
	// 128. Each event takes that much room in the ring buffer, however short
	// the text is. An argument of kind [Bytes] is no pointer, and of its
	// Capture only Max is used.
	Max int
}

const (
	defaultCapture = 128
	// maxStructures bounds what a record has of arguments that are bytes and
	// that nobody has asked for.
	maxStructures = 768
	// captureHead is what a capture takes beside its bytes, at most: a number,
	// two bytes at its end, and up to seven to align it.
	captureHead = 17
	// maxCapture keeps an event within the offsets of instructions, and within
	// a ring buffer of usual size.
	maxCapture = 32 << 10
)

// captures is SessionOptions.Captures with its arguments parsed, and Texts.
type captures struct {
	named       []parsedCapture
	definitions *providers.Definitions
	texts       int
}

type parsedCapture struct {
	probes []elfnote.Pattern
	bpfgen.Capture
	arg    expr.Term
	length *expr.Term // nil for none
}

func (o *SessionOptions) captures() (*captures, error) {
	if o.Texts < 0 || o.Texts > maxCapture {
		return nil, notBetween("Texts", o.Texts, 0, maxCapture)
	}
	all := &captures{definitions: o.Definitions, texts: o.Texts}
	for i := range o.Captures {
		c, err := o.Captures[i].parse(o.names())
		if err != nil {
			return nil, &OptionError{Field: "Captures", Index: i, Err: err}
		}
		all.named = append(all.named, c)
	}
	return all, nil
}

func (c *Capture) parse(names expr.Names) (parsedCapture, error) {
	parsed := parsedCapture{probes: slices.Clone(c.Probes)}
	parsed.Text, parsed.Max, parsed.Length = !c.Bytes, c.Max, bpfgen.None
	if parsed.Max == 0 {
		parsed.Max = defaultCapture
	}
	if parsed.Max < 1 || parsed.Max > maxCapture {
		return parsed, notBetween("Max", c.Max, 0, maxCapture)
	}
	var err error
	if parsed.arg, err = parseArgument(c.Arg, names); err != nil {
		return parsed, optionError("Arg", err)
	}
	if c.Length != "" {
		length, err := parseArgument(c.Length, names)
		if err != nil {
			return parsed, optionError("Length", err)
		}
		parsed.length = &length
	}
	return parsed, nil
}

// parseArgument reads a term that is an argument.
func parseArgument(source string, names expr.Names) (expr.Term, error) {
	t, err := expr.ParseTerm(source, names)
	if err == nil && (t.Source != expr.Argument || t.HasMask) {
		err = &expr.SyntaxError{Expression: source, Offset: t.Offset,
			Message: "an argument is expected: arg0, arg1, ..."}
	}
	return t, err
}

// of returns the captures for a site.
func (cs *captures) of(site *bpfgen.Site) []bpfgen.Capture {
	var found []bpfgen.Capture
	taken := make(map[int]bool)
	add := func(c bpfgen.Capture) {
		if !taken[c.Arg] && isPointer(site, c.Arg) {
			taken[c.Arg] = true
			found = append(found, c)
		}
	}
	for i := range cs.named {
		c := &cs.named[i]
		if !elfnote.MatchAny(c.probes, site.Provider, site.Name) {
			continue
		}
		here := c.Capture
		here.Arg = c.arg.Bind(site.Argument).Index
		if c.length != nil {
			here.Length = c.length.Bind(site.Argument).Index
		}
		add(here)
	}
	left := maxStructures
	for i := range site.Args {
		size := min(site.Args[i].Size, defaultCapture)
		if takes := captureHead + size; site.Args[i].Kind == argspec.Bytes && !taken[i] &&
			takes <= left {
			left -= takes
			add(bpfgen.Capture{Arg: i, Length: bpfgen.None, Max: size})
		}
	}
	if cs.texts == 0 {
		return found
	}
	probe, _ := definition(cs.definitions, site.Provider, site.Name, len(site.Args))
	for i := range probe.Arguments {
		if a := &probe.Arguments[i]; a.IsText {
			add(bpfgen.Capture{Arg: i, Text: true, Length: a.Length, Max: cs.texts})
		}
	}
	return found
}

// isPointer reports whether an argument can be a pointer: others of the same
// number, of another probe, are numbers that point nowhere.
func isPointer(site *bpfgen.Site, arg int) bool {
	if site.Pointer == 0 || arg < 0 || arg >= len(site.Args) ||
		site.Args[arg].Kind == argspec.Bytes {
		return true
	}
	return site.Args[arg].Size == site.Pointer && !site.Args[arg].Float
}
