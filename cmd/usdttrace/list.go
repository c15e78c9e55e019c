// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/providers"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// list prints what would be watched, of what is there now. It needs no
// privileges but to read the files.
func (t *tracer) list() error {
	o := t.options
	var err error
	if t.file != nil {
		t.file.replace()
	}
	found := 0
	switch {
	case len(o.files) > 0:
		for _, sel := range t.targets.selections {
			found += t.listSites(sel.Name(), sel)
		}
		for _, err := range t.targets.without {
			t.messages.Warn("%v", err)
		}
	case o.command != nil:
		found, err = t.listCommand()
	default:
		found, err = t.listProcesses()
	}
	switch {
	case err != nil || found > 0:
	case o.listPairs:
		err = &nothingError{errors.New("there is no such pair of probes")}
	default:
		err = &nothingError{t.targets.nothing(o.patterns, t.where())}
	}
	if e := t.out.Flush(); e != nil && err == nil {
		err = fmt.Errorf("writing the output: %w", e)
	}
	return err
}

// listSites prints the sites of a file, and returns how many there are.
func (t *tracer) listSites(file string, sel *usdt.Selection) int {
	if t.options.listPairs {
		return t.listPairs(file, sel)
	}
	t.printer.sites(file, sel)
	t.warnSkipped(sel, file)
	return sel.Len()
}

func (t *tracer) listPairs(file string, sel *usdt.Selection) int {
	listing, err := sel.File().Probes()
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

// listCommand prints the sites of what a command is known to map.
func (t *tracer) listCommand() (found int, err error) {
	program, err := exec.LookPath(t.options.command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return 0, fmt.Errorf("the command: %w", err)
	}
	for _, path := range commandFiles(program, t.options.command) {
		n, err := t.listTarget(path, usdt.Target{Path: path})
		if err != nil {
			return found, err
		}
		found += n
	}
	return found, nil
}

// listProcesses prints the sites of the files that processes map, each file
// once.
func (t *tracer) listProcesses() (found int, err error) {
	pid := t.options.pid
	listed := make(map[procwatch.FileID]bool)
	options := &procwatch.WatcherOptions{Handler: func(changes *procwatch.Changes) {
		for _, err := range changes.Errors {
			t.warnLeftOut(err, pid != 0)
		}
		for _, pair := range changes.Appeared {
			if id := pair.File.ID(); !listed[id] {
				listed[id] = true
				n, err := t.listTarget(pair.Path, usdt.Target{ProcessFile: pair})
				if err != nil {
					t.warnFailed(fmt.Errorf("process %s: %s: %w", pair.Process, pair.Path, err))
				}
				found += n
			}
		}
	}}
	if pid != 0 {
		options.Filter = func(p proc.Process) bool { return p.PID == pid }
	}
	watcher := procwatch.NewWatcher(options, t.options.patterns...)
	if pid != 0 {
		err = watcher.Sync(pid)
	} else {
		err = watcher.SyncAll()
	}
	watcher.Close() // the handler may be called until then
	switch {
	case !errors.As(err, new(*procfs.Error)):
		return found, err
	case found == 0:
		return 0, errReported
	}
	return found, nil // the handler has reported it
}

// listTarget prints the sites of a file that may have none.
func (t *tracer) listTarget(file string, target usdt.Target) (int, error) {
	sel, err := usdt.Select(target, t.options.patterns...)
	switch {
	case isNothing(err):
		t.targets.near(err)
		return 0, nil
	case err != nil:
		return 0, err
	}
	defer sel.Close()
	return t.listSites(file, sel), nil
}

// pairs returns the patterns of the pairs that are measured.
func (o *options) pairs() (all []elfnote.PairPattern) {
	for i := range o.spans {
		all = append(all, o.spans[i].Pair)
	}
	if o.latency != nil {
		all = append(all, o.latency.Pair)
	}
	return all
}

// checkPairs fails if the files have no pair that is to be measured.
func (t *targets) checkPairs() error {
	var all elfnote.Listing
	var where []string
	for _, sel := range t.selections {
		listing, err := sel.File().Probes()
		if err != nil {
			return fmt.Errorf("%s: %w", sel.Name(), err)
		}
		all.Probes = append(all.Probes, listing.Probes...)
		where = append(where, sel.Name())
	}
	return t.missingPairOf(&all, strings.Join(where, " or "))
}

// missingPair is the error if no pair that is to be measured is or was watched.
func (t *targets) missingPair(where string) error {
	listing := &elfnote.Listing{}
	t.mu.Lock()
	for probe := range t.probes {
		listing.Probes = append(listing.Probes, elfnote.Probe{Provider: probe[0], Name: probe[1],
			Sites: make([]elfnote.Site, 1)})
	}
	t.mu.Unlock()
	return t.missingPairOf(listing, where)
}

// missingPairOf returns an error for a pattern that selects none of the pairs
// among some probes.
func (t *targets) missingPairOf(listing *elfnote.Listing, where string) error {
	var missing []elfnote.Pattern // of ends
	for _, p := range t.options.pairs() {
		for _, end := range t.definitions.Patterns(p) {
			if !slices.ContainsFunc(listing.Probes,
				func(probe elfnote.Probe) bool { return end.Match(probe.Provider, probe.Name) }) {
				missing = append(missing, end)
				for _, sel := range t.selections {
					t.addNearest(sel.File(), []elfnote.Pattern{end})
				}
			}
		}
	}
	if len(missing) > 0 {
		err := t.nothing(missing, where)
		if len(t.nearest) == 0 {
			err = fmt.Errorf("%w%s", err, listsAll)
		}
		return &nothingError{err}
	}
	for _, p := range t.options.pairs() {
		if !slices.ContainsFunc(t.definitions.Pairs(listing, p), func(pair elfnote.Pair) bool {
			return len(pair.Start.Sites) > 0 && len(pair.Done.Sites) > 0
		}) {
			return &nothingError{&tracing.PairError{Pattern: p,
				Pairs: listing.Pairs(elfnote.MustParsePairPattern("*"))}}
		}
	}
	return nil
}

// useCalls has the probes of calls watched where the pattern of a pair names
// one that the definitions have.
func (o *options) useCalls(definitions *providers.Definitions) {
	for _, pair := range slices.Concat(o.pairs(), o.listed) {
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

// endsOf returns the probes that start a pair, and those that end it: of a call
// there can be several.
func (t *targets) endsOf(pair *elfnote.Pair) (start, done string) {
	starts := []string{cutName(pair.Start.Provider) + ":" + cutName(pair.Start.Name)}
	dones := []string{cutName(pair.Done.Provider) + ":" + cutName(pair.Done.Name)}
	pattern, err := elfnote.ParsePairPattern(pair.String())
	if call, ok := t.definitions.Call(pattern); ok && err == nil {
		starts, dones = nil, nil
		for _, ends := range call.Pairs {
			starts = append(starts, cutName(call.Provider)+":"+cutName(ends[0]))
			dones = append(dones, cutName(call.Provider)+":"+cutName(ends[1]))
		}
	}
	return strings.Join(starts, ", "), strings.Join(dones, ", ")
}

// parsePairs reads the patterns of --slow and --pairs, which are of pairs, and
// what is the same at both ends.
func (o *options) parsePairs(words []string, match string) error {
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
		if o.slow != nil {
			span := trace.Latency{Pair: pair}
			span.By, span.DoneBy, _ = strings.Cut(match, "=")
			o.spans = append(o.spans, span)
		}
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

// withPairs says which pairs a file has that has none of the wanted ones. The
// error is as it was if there are none.
func withPairs(target usdt.Target, wanted elfnote.PairPattern, err error) error {
	sel, failed := usdt.Select(target)
	if failed != nil {
		return err
	}
	defer sel.Close()
	listing, failed := sel.File().Probes()
	if failed != nil {
		return err
	}
	pairs := listing.Pairs(elfnote.MustParsePairPattern("*"))
	if len(pairs) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", sel.Name(), &tracing.PairError{Pattern: wanted, Pairs: pairs})
}

func parsePair(s string) (elfnote.PairPattern, error) {
	pair, err := elfnote.ParsePairPattern(s)
	if err != nil {
		err = fmt.Errorf("%w (usdttrace --pairs lists the pairs of a file)", err)
	}
	return pair, err
}

// sites prints a line for each probe of a file, with the arguments of the first
// site.
func (p *textPrinter) sites(file string, sel *usdt.Selection) {
	lines := [][]terminal.Cell{{left("PROBE"), right("SITES"), left("ARGUMENTS")}}
	line := make(map[[2]string]int)
	var counts []int
	for _, site := range sel.Sites() {
		name := [2]string{site.Provider, site.Name}
		at, ok := line[name]
		if !ok {
			at = len(counts)
			line[name], counts = at, append(counts, 0)
			text := cutName(site.Provider) + ":" + cutName(site.Name)
			lines = append(lines, []terminal.Cell{left(terminal.Escape(text)), right(""),
				left(p.tracer.targets.arguments(&site))})
		}
		counts[at]++
	}
	for at, n := range counts {
		lines[at+1][1].Text = fmt.Sprint(n)
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

func (p *jsonPrinter) sites(file string, sel *usdt.Selection) {
	for _, site := range sel.Sites() {
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
