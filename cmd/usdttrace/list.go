// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/ldso"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// list prints the probes that would be watched of the files there are now. It
// needs no privileges but to read the files.
func (t *tracer) list() (err error) {
	o := t.options
	if t.file != nil {
		t.file.Replace()
	}
	found := 0
	switch {
	case len(o.files) > 0:
		for _, sel := range t.targets.selections {
			found += t.listSites(sel.Name(), sel)
		}
		for _, listed := range t.targets.listed {
			found += t.listUnattachable(listed)
		}
		for _, err := range t.targets.without {
			t.messages.Warn("%v", err)
		}
	case o.command != nil:
		program, e := exec.LookPath(o.command[0])
		if e != nil && !errors.Is(e, exec.ErrDot) {
			return fmt.Errorf("the command: %w", e)
		}
		for _, path := range commandFiles(program, o.command) {
			n, e := t.listTarget(path, usdt.Target{Path: path, Symbols: debuginfo.AddInstalled})
			if found += n; !errors.Is(e, elfnote.ErrNotELF) { // else it is a script
				err = cmp.Or(err, e)
			}
		}
	default:
		err = commandline.EachFile(o.pid, func(pair *procwatch.ProcessFile) {
			n, err := t.listTarget(pair.Path, usdt.Target{ELF: pair.ELF(), Symbols: debuginfo.AddInstalled})
			if found += n; err != nil {
				t.warnFailed(fmt.Errorf("process %s: %s: %w", pair.Process, pair.Path, err))
			}
		}, func(err error) { t.warnLeftOut(err, o.pid != 0) }, o.patterns...)
		if errors.As(err, new(*procfs.Error)) { // reported already
			if err = nil; found == 0 {
				return errReported
			}
		}
	}
	switch {
	case err != nil || found > 0:
	default:
		if len(o.files) == 0 && o.command == nil {
			t.ctx = context.Background()
			t.addNearest(t.targets, o.pid, o.patterns...)
		}
		err = t.targets.nothing(o.patterns, t.where())
		if o.listPairs {
			err = errors.New("there is no such pair of probes" + defs.Nearest(t.targets.nearest))
		}
		if o.command != nil {
			err = fmt.Errorf("%w%s", err, t.commandElsewhere())
		}
		err = &nothingError{err}
	}
	return cmp.Or(err, t.flush())
}

// listTarget prints the sites of a file that may have none.
func (t *tracer) listTarget(file string, target usdt.Target) (int, error) {
	sel, err := usdt.Select(target, t.options.patterns...)
	switch {
	case isNothing(err):
		t.targets.near(err)
		return 0, nil
	case err != nil && target.ELF != nil && !t.options.listPairs:
		if listed := newListedFile(file, target.ELF, err, t.options.patterns); listed != nil {
			return t.listUnattachable(listed), nil
		}
		return 0, err
	case err != nil:
		return 0, err
	}
	defer sel.Close()
	return t.listSites(file, sel), nil
}

// listedFile is a file that can be listed, but not be attached.
type listedFile struct {
	name  string
	sites []usdt.Site
	why   error
}

// newListedFile reads the matching probes of a file. It returns nil if there
// are none.
func newListedFile(name string, file *elfnote.File, why error, patterns []elfnote.Pattern) *listedFile {
	listing, err := defs.List(file, patterns...)
	if err != nil || len(listing.Probes) == 0 {
		return nil
	}
	l := &listedFile{name: name, why: why}
	for _, probe := range listing.Probes {
		for _, site := range probe.Sites {
			args := argspec.Decode(nil, file, site.Location, site.Arguments)
			l.sites = append(l.sites, usdt.Site{Site: site, Instruction: site.Location, Args: args})
		}
	}
	return l
}

// addListed takes a file that cannot be attached, to be listed. It reports
// whether that has matching probes.
func (t *targets) addListed(path string, why error) bool {
	if !strings.Contains(path, "/") && !commandline.IsFileHere(path) {
		path, _ = ldso.Find(path)
	}
	file, err := elfnote.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	listed := newListedFile(path, file, why, t.options.patterns)
	if listed != nil {
		t.listed = append(t.listed, listed)
	}
	return listed != nil
}

func (t *tracer) listUnattachable(listed *listedFile) int {
	t.printer.sites(listed.name, listed.sites)
	t.messages.WarnOf("listed only", "%v (it is only listed)", listed.why)
	return len(listed.sites)
}

// listSites prints the sites of a file, or its pairs, and returns how many
// there are.
func (t *tracer) listSites(file string, sel *usdt.Selection) int {
	if !t.options.listPairs {
		t.printer.sites(file, sel.Sites())
		t.warnSkipped(sel, file)
		return len(sel.Sites())
	}
	listing, err := defs.List(sel.File())
	if err != nil {
		t.warnFailed(fmt.Errorf("%s: %w", file, err))
		return 0
	}
	pairs := t.targets.definitions.Pairs(listing, t.options.listed...)
	if len(pairs) > 0 {
		t.printer.pairs(file, pairs)
	}
	return len(pairs)
}

// pairs returns the patterns of the pairs that are measured.
func (o *options) pairs() (all []defs.PairPattern) {
	if o.slow != nil {
		all = slices.Clone(o.listed)
	}
	if o.latency != nil {
		pair, _ := defs.ParsePairPattern(o.latency.Pair) // which was parsed before
		all = append(all, pair)
	}
	return all
}

// missingPair returns an error if a pair to be measured matches none of the
// probes that are or were watched, or are in the named files.
func (t *targets) missingPair(where string) error {
	t.mu.Lock()
	listing, selections := t.listing(), slices.Clone(t.selections)
	t.mu.Unlock()
	var missing []elfnote.Pattern // of ends
	for _, p := range t.options.pairs() {
		for _, end := range t.definitions.Patterns(p) {
			if !slices.ContainsFunc(listing.Probes,
				func(probe defs.FileProbe) bool { return end.Match(probe.Provider, probe.Name) }) {
				missing = append(missing, end)
				provider, _, _ := strings.Cut(end.String(), ":")
				// Who names the ends by START..DONE is told which lacks.
				if !strings.Contains(p.String(), "..") && slices.ContainsFunc(listing.Probes,
					func(probe defs.FileProbe) bool { return probe.Provider == provider }) {
					return &nothingError{fmt.Errorf("there is no pair of probes %s in %s "+
						"(usdttrace --pairs FILE lists those of a file)", p, cmp.Or(where, "the files"))}
				}
			}
		}
	}
	if len(missing) > 0 {
		for _, sel := range selections {
			for i := range missing {
				t.addNearest(sel.File(), missing[i:i+1])
			}
		}
		err := t.nothing(missing, where)
		if len(t.nearest) == 0 {
			err = fmt.Errorf("%w%s", err, listsAll)
		}
		return &nothingError{err}
	}
	for _, p := range t.options.pairs() {
		if !slices.ContainsFunc(t.definitions.Pairs(listing, p), func(pair defs.Pair) bool {
			return len(pair.Start.Sites) > 0 && len(pair.Done.Sites) > 0
		}) {
			if t.options.match != "" { // probes without it are not among those that are watched
				return &nothingError{errNoMatch}
			}
			// Those watched may have no pair where the file has some.
			for _, sel := range selections {
				whole, err := defs.List(sel.File())
				if err != nil {
					continue
				}
				if e := t.definitions.NewPairError(p, whole); len(e.Pairs) > 0 {
					return &nothingError{fmt.Errorf("%s: %w", sel.Name(), e)}
				}
			}
			return &nothingError{t.definitions.NewPairError(p, listing)}
		}
	}
	return nil
}

var errNoMatch = errors.New("no pair of probes has the arguments that --match names")

// listing returns the names of the probes that are watched, if pairs are
// measured.
func (t *targets) listing() *defs.Listing {
	listing := new(defs.Listing)
	for probe := range t.probes {
		listing.Probes = append(listing.Probes, defs.FileProbe{Provider: probe[0], Name: probe[1],
			Sites: make([]elfnote.Site, 1)})
	}
	return listing
}

// takeCalls has calls that stand in the place of a PATTERN printed as --slow 0
// does, or measured as --latency does where hits are added up. Lists have the
// probes of the call.
func (o *options) takeCalls(
	definitions *defs.Definitions, note func(format string, args ...any),
) error {
	if o.latency != nil || o.slow != nil || o.listPairs {
		return nil
	}
	as := map[bool]string{true: "--latency measures it", false: "--slow 0 shows it"}[o.aggregates()]
	if o.list {
		as = "its probes are listed"
	}
	probes, calls := commandline.Calls(o.patterns, definitions, func(text string) {
		note("%s: %s", text, as)
	})
	switch {
	case len(calls) == 0:
		return nil
	case o.list:
		for o.patterns = probes; len(calls) > 0; calls = calls[1:] {
			o.patterns = append(o.patterns, definitions.Patterns(calls[0])...)
		}
		return nil
	case o.aggregates() && len(calls) > 1:
		return fmt.Errorf("%s and %s are calls: one is measured at a time", calls[0], calls[1])
	case !o.aggregates() && len(probes) > 0:
		return fmt.Errorf("%s is a call and %s a probe: calls and hits are shown by two commands",
			calls[0], probes[0])
	}
	o.probes, o.patterns = probes, probes
	for _, call := range calls {
		o.patterns = append(o.patterns, call.Patterns()...)
		if o.aggregates() {
			o.latency = &trace.Latency{Pair: call.String()}
			o.count = o.count && len(probes) > 0 // the table has the calls' number
		} else {
			o.slow = new(time.Duration)
			o.listed = append(o.listed, call)
		}
	}
	return o.check()
}

// useCalls replaces the patterns of a pair that names a call of the definitions
// by those of the call's probes, and keeps the names of its arguments for
// --latency.
func (o *options) useCalls(definitions *defs.Definitions) {
	pairs := o.pairs()
	if o.listPairs {
		pairs = o.listed
	}
	for _, pair := range pairs {
		call, ok := definitions.Call(pair)
		if !ok {
			continue
		}
		for i := range call.Arguments {
			if o.latency != nil {
				o.callArguments = append(o.callArguments, call.Arguments[i].Name)
			}
		}
		usual := pair.Patterns()[0].String()
		o.patterns = slices.DeleteFunc(o.patterns,
			func(p elfnote.Pattern) bool { return p.String() == usual })
		o.patterns = append(o.patterns, definitions.Patterns(pair)...)
	}
}

// pairFacts are the probes that start a pair, and those that end it: of a call
// there can be several. The others are what the definitions say of it.
type pairFacts struct{ start, done, match, counts, time string }

func (t *targets) factsOf(pair *defs.Pair) (f pairFacts) {
	starts := []string{shownName(pair.Start.Provider, pair.Start.Name)}
	dones := []string{shownName(pair.Done.Provider, pair.Done.Name)}
	pattern, err := defs.ParsePairPattern(pair.String())
	if err == nil {
		f.match, f.time = t.definitions.Match(pattern), t.definitions.Time(pattern)
	}
	if call, ok := t.definitions.Call(pattern); ok && err == nil {
		f.counts = map[defs.Nesting]string{defs.Outermost: "outermost",
			defs.Each: "each", defs.Alone: "alone"}[call.Nesting]
		starts, dones = nil, nil
		for _, ends := range call.Pairs {
			starts = append(starts, shownName(call.Provider, ends[0]))
			dones = append(dones, shownName(call.Provider, ends[1]))
		}
	}
	f.match = cmp.Or(f.match, "tid")
	f.start = strings.Join(slices.Compact(starts), ", ")
	f.done = strings.Join(slices.Compact(dones), ", ")
	return f
}

// parsePairs reads the pairs of --slow and --pairs.
func (o *options) parsePairs(words []string) error {
	if len(words) == 0 && o.listPairs {
		words = []string{"*"}
	}
	for _, word := range words {
		pair, err := parsePair(word)
		if err != nil {
			return err
		}
		o.patterns = append(o.patterns, pair.Patterns()...)
		o.listed = append(o.listed, pair)
	}
	return nil
}

// filter returns the condition that the kernel evaluates.
func (o *options) filter() string {
	if o.slow == nil || *o.slow == 0 {
		return o.where
	}
	return and(o.where, fmt.Sprintf("duration >= %dns", o.slow.Nanoseconds()))
}

// and joins two conditions. The first may be empty.
func and(condition, other string) string {
	switch {
	case condition == "":
		return other
	case strings.Contains(condition, "||"):
		return "(" + condition + ") && " + other
	default:
		return condition + " && " + other
	}
}

func parsePair(s string) (defs.PairPattern, error) {
	pair, err := defs.ParsePairPattern(s)
	switch _, second, _ := strings.Cut(s, ","); {
	case strings.Contains(second, ":"):
		err = fmt.Errorf("%s: one PAIR is measured at a time", s)
	case err != nil:
		err = fmt.Errorf("%w (usdttrace --pairs lists the pairs of a file)", err)
	}
	return pair, err
}

// sites prints a line for each probe of a file, with the arguments of the first
// site.
func (p *textPrinter) sites(file string, sites []usdt.Site) {
	lines := [][]terminal.Cell{{left("PROBE"), right("SITES"), left("ARGUMENTS")}}
	var names [][2]string
	counts := make(map[[2]string]int)
	for _, site := range sites {
		name := [2]string{site.Provider, site.Name}
		if counts[name]++; counts[name] == 1 {
			names = append(names, name)
			lines = append(lines, []terminal.Cell{left(terminal.Escape(siteName(&site))), {},
				left(p.tracer.targets.arguments(&site))})
		}
	}
	for i, name := range names {
		lines[i+1][1] = right(fmt.Sprint(counts[name]))
	}
	p.fileTable(file, lines)
}

func (p *textPrinter) fileTable(file string, lines [][]terminal.Cell) {
	var b strings.Builder
	p.separate(&b)
	fmt.Fprintf(&b, "%sFile: %s%s\n", p.style.header, terminal.Escape(file), p.style.reset)
	terminal.WriteTable(&b, slices.Values(lines), nil)
	io.WriteString(p.out, b.String()) // the output keeps the error
}

// separate writes an empty line, unless nothing has been printed so far.
func (p *textPrinter) separate(b *strings.Builder) {
	if p.begun {
		b.WriteByte('\n')
	}
	p.begun = true
}

// arguments returns "generation: i32", with the names that are known, "-"
// for no arguments.
func (t *targets) arguments(site *usdt.Site) string {
	probe := t.definition(site)
	var texts []string
	for i := range site.Args {
		text := argumentType(&site.Args[i])
		if probe.Arguments != nil {
			argument := &probe.Arguments[i]
			if argument.IsText && site.Args[i].Kind != argspec.Unavailable {
				text = "text"
			}
			if argument.Name != "" {
				text = argument.Name + ": " + text
			}
		}
		texts = append(texts, text)
	}
	return cmp.Or(strings.Join(texts, ", "), "-")
}

func argumentType(arg *argspec.Arg) string {
	if arg.Kind == argspec.Unavailable {
		return "unavailable"
	}
	text, _, _ := strings.Cut(arg.String(), " @ ")
	return text
}

func (p *jsonPrinter) sites(file string, sites []usdt.Site) {
	for _, site := range sites {
		j := p.begin("site")
		j.Fields("provider", cutName(site.Provider), "name", cutName(site.Name), "file", file,
			"location", site.Location)
		j.Array("args", func() {
			for n := range site.Args {
				j.Value(argumentType(&site.Args[n]))
			}
		})
		p.end()
	}
}
