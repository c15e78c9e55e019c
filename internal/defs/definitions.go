// SPDX-License-Identifier: BSD-2-Clause

// Package defs lists the probes of a file, reads the definitions of providers,
// and finds pairs of probes, calls, and the probes that a pattern without a
// match may have meant. Package providers documents the language of
// definitions, and has the part of this package that is for users.
package defs

import (
	"embed"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/pattern"
	"github.com/gousdt/gousdt/internal/tracing"
)

// Definitions say what the arguments of probes mean. The zero value knows none.
// It must not be changed while it is in use.
type Definitions struct {
	probes  map[probeKey]Probe
	calls   map[[2]string]Call  // by provider and name
	pragmas map[string][]pragma // by kind
	builtin bool                // also those that this package has
}

// A probe is defined once for each number of arguments that it ever had.
type probeKey struct {
	provider, name string
	arguments      int
}

// pragma says something of the probes, or the calls, that a pattern matches.
type pragma struct {
	pattern elfnote.Pattern
	name    string          // the key, the argument of a note, the member of a layout, or the kind of stacks
	text    string          // for a helper, the symbol
	probe   elfnote.Pattern // the helper
	offset  int64           // that of a layout's member behind a variable
	offsets []int32         // those of a frame, and of its caller
}

// missingBuild is the kind of a pragma that says which builds have the probes
// of a provider. It is written "fires PATTERN missing: REASON".
const missingBuild = "missing"

// own returns the last pragma of a kind about a probe or call among those that
// were parsed into d. It returns nil if there is none.
func (d *Definitions) own(kind, provider, name string) *pragma {
	all := d.pragmas[kind]
	for i := range slices.Backward(all) {
		if all[i].pattern.Match(provider, name) {
			return &all[i]
		}
	}
	return nil
}

// last is own, or else the last one of those that this package has.
func (d *Definitions) last(kind, provider, name string) *pragma {
	if d == nil {
		return nil
	}
	if p := d.own(kind, provider, name); p != nil || !d.builtin {
		return p
	}
	return builtinOf(provider).own(kind, provider, name)
}

// Probe is the definition of a probe.
type Probe struct {
	Provider  string
	Name      string
	Arguments []Argument
}

// Argument is the definition of an argument.
type Argument struct {
	// Name is "" if the definition has none.
	Name string
	// Type is the type as the definition has it, such as "const char *".
	Type string
	// IsText reports whether the argument points to a text.
	IsText bool
	// Length is the number of the argument, from 0, with the length of the text
	// in bytes, or -1 if a zero byte ends it.
	Length int
	// Value is the source of an argument of a call at its start: "global.NAME"
	// for a variable of the program, or an argument of the probe, "arg0" or by
	// its name. For an argument of a probe it is "" or a pointer that is read
	// from memory: "arg1[1]" for the second one at arg1.
	Value string
	// Note is what to know about the values, such as their unit, or "".
	Note string

	// Values has the names of the values of an enumeration, which arguments of
	// one type share; nil if the argument is of another type.
	Values map[int64]string
}

// A Call is an operation whose probes the definitions name, perhaps several
// that start and end it.
type Call struct {
	Provider string
	Name     string
	// Arguments are those of the start, whichever probe that is.
	Arguments []Argument
	// Pairs are the names of probes that start it, each with its end.
	Pairs [][2]string
	// Failed are probes that end it, too, where it fails.
	Failed []CallProbe
	// Attempts are probes that fire before a call. If the call fails or hangs
	// before its start, it has started there. An attempt that does not fail is
	// no call, and ends where the probe fires again.
	Attempts []CallProbe
	// Over are probes at which no call goes on any more: one without an end was
	// left, as by an error.
	Over []CallProbe
	// Open says how a call that goes on is seen from outside: the condition is
	// one on variables of the program. Name is that of a function that returns
	// when the call began, in microseconds since 2000.
	Open []CallProbe
	// Nesting says what counts where one starts while another one goes on.
	Nesting Nesting
}

// Nesting says which calls count where a call starts while another one goes on,
// in the same thread or with the same matching value.
type Nesting uint8

// The nestings of calls.
const (
	// Outermost counts the call that has started first, as one.
	Outermost Nesting = iota
	// Each counts each call: those in one function by its frame, of others the
	// last start ends first.
	Each
	// Alone counts the calls that overlap no other. Which end belongs to which
	// start is not known of the others.
	Alone
)

// A CallProbe is a probe that ends or announces a call.
type CallProbe struct {
	Name string
	// If is the condition, in the language of package trace, on which the probe
	// counts. If it is empty, the probe always counts.
	If string
}

// KnowsFailures reports whether the ends of calls that fail are known: their
// definition has them, or the pattern names some.
func (d *Definitions) KnowsFailures(pair PairPattern) bool {
	call, _ := d.Call(pair)
	return len(call.Failed)+len(call.Over) > 0 || strings.Contains(pair.String(), "|")
}

// Call returns the call that a pattern of pairs names, as in
// postgresql:statement. Nil Definitions know none.
func (d *Definitions) Call(pair PairPattern) (Call, bool) {
	provider, name, _ := strings.Cut(pair.String(), ":")
	if d == nil {
		return Call{}, false
	}
	start, done, both := strings.Cut(name, "..")
	found, ok := d.calls[[2]string{provider, name}]
	for key, call := range d.calls {
		// The two probes of a call are the call, if it has no others.
		if both && key[0] == provider && call.isOf(start, strings.TrimPrefix(done, provider+":")) {
			found, ok = call, true
		}
	}
	if !ok && d.builtin {
		return builtinOf(provider).Call(pair)
	}
	found.Arguments, found.Pairs = slices.Clone(found.Arguments), slices.Clone(found.Pairs)
	found.Failed, found.Attempts = slices.Clone(found.Failed), slices.Clone(found.Attempts)
	found.Over = slices.Clone(found.Over)
	return found, ok
}

func (c *Call) isOf(start, done string) bool {
	return len(c.Pairs) == 1 && c.Pairs[0] == [2]string{start, done} &&
		len(c.Failed)+len(c.Attempts) == 0
}

// Pairs returns the pairs among some probes that match any of the patterns: the
// calls whose start and end are among them, and those whose names the patterns
// select, in the order of the probes that start them. A probe may be the Start
// of several of these, with different ends, but the Done of only one. A call
// PROVIDER:NAME is a pair of NAME__start and NAME__done, whether or not there
// are such probes. Nil Definitions know no calls.
func (d *Definitions) Pairs(
	listing *Listing, patterns ...PairPattern,
) (pairs []Pair) {
	if listing == nil {
		return nil
	}
	known := make(map[[2]string]*FileProbe)
	var names []string
	for i := range listing.Probes {
		p := &listing.Probes[i]
		known[[2]string{p.Provider, p.Name}] = p
		if !slices.Contains(names, p.Provider) {
			names = append(names, p.Provider)
		}
	}
	for _, provider := range names {
		for _, call := range d.callsOf(provider) {
			for _, ends := range call.Pairs {
				start, done := known[[2]string{provider, ends[0]}], known[[2]string{provider, ends[1]}]
				if start == nil || done == nil {
					continue
				}
				as := Listing{Probes: []FileProbe{
					{Provider: provider, Name: call.Name + "__start", Sites: start.Sites},
					{Provider: provider, Name: call.Name + "__done", Sites: done.Sites}}}
				pairs = append(pairs, slices.DeleteFunc(pairsIn(&as, patterns...), func(pair Pair) bool {
					// One of two literal names may be that of a probe.
					return pair.Start.Name != as.Probes[0].Name || pair.Done.Name != as.Probes[1].Name
				})...)
				break
			}
		}
	}
	calls := len(pairs)
	for _, pair := range d.NamedPairs(listing, patterns...) {
		if !slices.ContainsFunc(pairs[:calls], func(call Pair) bool {
			return call.String() == pair.String()
		}) {
			pairs = append(pairs, pair)
		}
	}
	return pairs
}

// NamedPairs returns the pairs whose names the patterns select, without calls
// and without the pairs that are none, though their names end as those of a
// pair do. A pattern START..DONE selects these, too.
func (d *Definitions) NamedPairs(
	listing *Listing, patterns ...PairPattern,
) []Pair {
	if listing == nil {
		return nil
	}
	return slices.DeleteFunc(pairsIn(listing, patterns...), func(pair Pair) bool {
		return d.last("apart", pair.Start.Provider, pair.Start.Name) != nil &&
			!slices.ContainsFunc(patterns, func(p PairPattern) bool {
				return strings.Contains(p.String(), "..") &&
					p.Patterns()[0].Match(pair.Start.Provider, pair.Start.Name)
			})
	})
}

// Match returns the term, for Latency.By of package trace, that the start and
// the end of the pairs that a pattern selects have in common. It is "" if the
// definitions name none for the provider, which the pattern has to name without
// wildcards. Nil Definitions know none.
func (d *Definitions) Match(pair PairPattern) string {
	return d.textOf("match", pair)
}

// Time returns what the time of a pair is, such as "a thread waits to enter a
// monitor", for "the time while". It is "" if that is not known.
func (d *Definitions) Time(pair PairPattern) (text string) {
	return d.textOf("time", pair)
}

// textOf returns what the last pragma of a kind says of a pair, or "".
func (d *Definitions) textOf(kind string, pair PairPattern) string {
	if d == nil {
		return ""
	}
	provider, name, _ := strings.Cut(pair.String(), ":")
	if call, ok := d.Call(pair); ok {
		name = call.Name
	}
	if p := d.own(kind, provider, name); p != nil {
		return p.text
	}
	if d.builtin {
		return builtinOf(provider).textOf(kind, pair) // it may name the call otherwise
	}
	return ""
}

// all returns this and what it extends.
func (d *Definitions) all() (all []*Definitions) {
	if d == nil {
		return nil
	}
	all = append(all, d)
	if d.builtin {
		for _, file := range builtinFiles() {
			all = append(all, file.parsed())
		}
	}
	return all
}

// Key returns the expression that a name stands for at a probe that one of the
// patterns matches, or at any if there is none. It is "" if there is no such
// name.
func (d *Definitions) Key(name string, patterns []elfnote.Pattern) string {
	for _, from := range d.all() {
		for _, key := range slices.Backward(from.pragmas["key"]) {
			if key.name != name {
				continue
			}
			for probe := range d.Probes() {
				if key.pattern.Match(probe.Provider, probe.Name) &&
					pattern.MatchAny(patterns, probe.Provider, probe.Name) {
					return key.text
				}
			}
		}
	}
	return ""
}

// Keys returns the names for which [Definitions.Key] has an expression at a
// probe that one of some patterns matches, in the order of the definitions.
func (d *Definitions) Keys(patterns []elfnote.Pattern) (names []string) {
	for _, from := range d.all() {
		for _, key := range from.pragmas["key"] {
			if !slices.Contains(names, key.name) && d.Key(key.name, patterns) != "" {
				names = append(names, key.name)
			}
		}
	}
	return names
}

// Layout returns the offset of a member that points to a text in a structure to
// which a variable points, such as "MyProcPort->user_name", in a program of
// which has reports whether it has a text.
func (d *Definitions) Layout(member string, has func(text string) bool) (offset int64, ok bool) {
	for _, from := range d.all() {
		for _, l := range slices.Backward(from.pragmas["layout"]) {
			if l.name == member && has(l.text) {
				return l.offset, true
			}
		}
	}
	return 0, false
}

// Frame returns how the frame of an interpreter's function is found at the
// probes of a pair, where has reports whether the program has a symbol: the
// function that returns a pointer, the members from there to the frame, and
// the frame's pointer to that of its caller. The function is "" if it is not
// known.
func (d *Definitions) Frame(
	provider, pair string, has func(symbol string) bool,
) (function string, members []int32, caller int32) {
	for _, from := range d.all() {
		for _, f := range slices.Backward(from.pragmas["frame"]) {
			if last := len(f.offsets) - 1; f.pattern.Match(provider, pair) && (f.text == "" || has(f.text)) {
				return f.name, f.offsets[:last], f.offsets[last]
			}
		}
	}
	return "", nil, 0
}

// Stacks says that threads run stacks of others in place of their own while
// calls of a pair go on: those of Kind, from a start on at which If holds.
type Stacks struct {
	Pair     elfnote.Pattern
	Kind, If string
}

// Stacks returns what is known of pairs, the most significant last.
func (d *Definitions) Stacks() (all []Stacks) {
	for _, from := range slices.Backward(d.all()) {
		for _, s := range from.pragmas["stacks"] {
			all = append(all, Stacks{s.pattern, s.name, s.text})
		}
	}
	return all
}

// Own returns the path of a member, in the structures that a variable points
// to, that has the value of a variable in the process whose structure it is:
// processes share these structures. The path is "" if they are its own.
func (d *Definitions) Own(of string) (path, variable string) {
	for _, from := range d.all() {
		for _, own := range slices.Backward(from.pragmas["own"]) {
			if path, ok := strings.CutPrefix(own.name, of+"->"); ok {
				return "->" + path, own.text
			}
		}
	}
	return "", ""
}

// callsOf returns the calls of a provider, sorted by their names.
func (d *Definitions) callsOf(provider string) (calls []Call) {
	if d == nil {
		return nil
	}
	if d.builtin {
		calls = builtinOf(provider).callsOf(provider)
	}
	for _, call := range d.calls {
		if call.Provider == provider {
			calls = slices.DeleteFunc(calls, func(c Call) bool { return c.Name == call.Name })
			calls = append(calls, call)
		}
	}
	slices.SortFunc(calls, func(a, b Call) int { return strings.Compare(a.Name, b.Name) })
	return calls
}

// Patterns returns patterns that match the probes of the call that a pattern
// names, or else those of its pairs and perhaps others: see
// [PairPattern.Patterns].
func (d *Definitions) Patterns(pair PairPattern) []elfnote.Pattern {
	call, ok := d.Call(pair)
	if !ok {
		return pair.Patterns()
	}
	var patterns []elfnote.Pattern
	for _, p := range call.Pairs {
		patterns = append(patterns, elfnote.Exact(call.Provider, p[0]),
			elfnote.Exact(call.Provider, p[1]))
	}
	for _, f := range slices.Concat(call.Failed, call.Attempts, call.Over) {
		patterns = append(patterns, elfnote.Exact(call.Provider, f.Name))
	}
	return patterns
}

// Builtin returns the definitions that this package has, which the caller may
// extend.
func Builtin() *Definitions { return &Definitions{builtin: true} }

// Probe returns the definition of a probe with that number of arguments.
func (d *Definitions) Probe(provider, name string, arguments int) (Probe, bool) {
	probe, ok := d.probes[probeKey{provider, name, arguments}]
	if !ok && d.builtin {
		return builtinOf(provider).Probe(provider, name, arguments)
	}
	probe.Arguments = slices.Clone(probe.Arguments) // those of all users
	return probe, ok
}

// Probes returns the definitions of all probes, in no order.
func (d *Definitions) Probes() iter.Seq[Probe] {
	return func(yield func(Probe) bool) {
		for _, from := range d.all() {
			for key, probe := range from.probes {
				if _, replaced := d.probes[key]; replaced && from != d {
					continue
				}
				probe.Arguments = slices.Clone(probe.Arguments)
				if !yield(probe) {
					return
				}
			}
		}
	}
}

// Fires returns two texts: the event at which a probe fires, such as "a
// statement is done", and the condition on which it fires, such as "only while
// tracing is on". Each is "" if it is not known. Of several texts the last one
// that was read counts.
func (d *Definitions) Fires(provider, name string) (when, only string) {
	if p := d.last("when", provider, name); p != nil {
		when = p.text
	}
	if p := d.last("fires", provider, name); p != nil {
		only = p.text
	}
	return when, only
}

// Helper returns a pattern of the probes that must be attached, too, for a
// probe to fire. They are needed in files that define a symbol, or in all files
// if that is "". ok is false if there are none. Nil Definitions know none.
// Package trace attaches these probes with the others, and their hits count for
// nothing.
func (d *Definitions) Helper(provider, name string) (probe elfnote.Pattern, symbol string, ok bool) {
	if h := d.last("helper", provider, name); h != nil {
		return h.probe, h.text, true
	}
	return probe, "", false
}

// lengthSuffix ends the name of an argument with the length of another one.
const lengthSuffix = "_length"

// markTexts finds the arguments that are texts, and their lengths.
func markTexts(arguments []Argument) {
	for i := range arguments {
		a := &arguments[i]
		a.Length = -1
		a.IsText = strings.Join(strings.Fields(strings.ReplaceAll(a.Type, "const", "")),
			"") == "char*" || a.Type == tracing.TypeName
		if a.IsText && a.Name != "" && i+1 < len(arguments) &&
			arguments[i+1].Name == a.Name+lengthSuffix {
			a.Length = i + 1
		}
	}
}

//go:embed definitions
var builtin embed.FS

// builtinFile is one of the files that this package has. It is parsed when it
// is needed: to parse all of them takes a millisecond, a third of the time of a
// short command.
type builtinFile struct {
	name   string
	source []byte
	parsed func() *Definitions
}

var builtinFiles = sync.OnceValue(func() []*builtinFile {
	entries, err := builtin.ReadDir("definitions")
	if err != nil {
		panic(err)
	}
	var files []*builtinFile
	for _, entry := range entries {
		source, err := builtin.ReadFile("definitions/" + entry.Name())
		if err != nil {
			panic(err)
		}
		files = append(files, &builtinFile{entry.Name(), source, sync.OnceValue(func() *Definitions {
			d := new(Definitions)
			if err := d.Parse(entry.Name(), source); err != nil {
				panic(err) // a test parses them
			}
			return d
		})})
	}
	return files
})

// builtinByProvider finds the providers of the files without parsing these:
// each provider is in a line of its own, and none is a pattern.
var builtinByProvider = sync.OnceValue(func() map[string]*builtinFile {
	files := make(map[string]*builtinFile)
	for _, file := range builtinFiles() {
		for line := range strings.Lines(string(file.source)) {
			if name, ok := strings.CutPrefix(line, "provider "); ok {
				name, _, _ = strings.Cut(name, " ")
				files[name] = file
			} else if pattern, ok := strings.CutPrefix(line, "#pragma gousdt fires "); ok {
				name, _, _ = strings.Cut(pattern, ":")
				files[name] = file
			}
		}
	}
	return files
})

// builtinOf returns the definitions of a file that has a provider.
func builtinOf(provider string) *Definitions {
	if file, ok := builtinByProvider()[provider]; ok {
		return file.parsed()
	}
	return new(Definitions)
}
