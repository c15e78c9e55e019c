// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/pattern"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
)

// explain returns the text of an error as it is printed. For a missing
// privilege it names that, and says how to run the command.
func explain(err error) string {
	var denied *attaching.PermissionError
	var filtered *tracing.FilteredError
	var full *usdt.LimitError
	var notFound *usdt.NotFoundError
	switch {
	case errors.As(err, &notFound) && len(notFound.Patterns) > 0 &&
		!strings.Contains(err.Error(), " (nearest: "):
		return err.Error() + cmp.Or(defs.Builtin().Never(notFound.Patterns),
			defs.Builtin().NearestAmong(notFound.Probes, notFound.Patterns), listsAll)
	case errors.As(err, &denied):
		return fmt.Sprintf("not permitted (%s): %s", denied.Op, advice(denied.Err))
	case errors.As(err, &filtered):
		return filtered.Error()
	case errors.As(err, &full):
		flag := *full
		for limit, option := range limitOptions {
			if option == full.Option {
				flag.Option = "--limits " + limit + "="
			}
		}
		return strings.Replace(err.Error(), full.Error(), flag.Error(), 1)
	}
	return err.Error()
}

// listsAll is the hint where no name is near.
const listsAll = " (usdtlist lists those of a file or process)"

// named returns an error about an option of the session as one about the flag
// that sets it.
func (t *tracer) named(err error) error {
	var option *tracing.OptionError
	if !errors.As(err, &option) {
		return err
	}
	flag := map[string]string{"Filter": "where", "RingSize": "buffer", "StackCopy": "unwind",
		"SampleEvery": "every", "SamplePerSecond": "rate", "Family": "follow", "Captures": "str",
	}[option.Field]
	switch {
	case option.Field == "Spans": // all else of them has been checked
		return fmt.Errorf("--match: %w", option.Err)
	case option.Field == "Captures" && option.Index >= 0:
		flag = captureFlag(&t.options.captures[option.Index])
	case option.Field == "Aggregations":
		asked := slices.DeleteFunc(slices.Clone(t.asked),
			func(a *aggregation) bool { return a.inKernel == nil })
		flag = asked[option.Index].kind
	}
	// The error may be about a field of the aggregation, or of its latency.
	for depth := 1; errors.As(option.Err, &option); depth++ {
		switch {
		case depth == 1 && option.Field == "By":
			flag = "by"
		case depth == 2:
			flag = "match"
		}
	}
	switch {
	case flag == "":
		return option.Err
	case flag == "by" && t.options.normalize != nil && strings.Contains(option.Error(), "a smaller limit"):
		return fmt.Errorf("--by: %w (without one, --normalize reads more of a string)", option.Err)
	}
	return fmt.Errorf("%s--%s: %w", t.targets.unknown(option.Err), flag, option.Err)
}

// unknown says that no probe of the definitions matches the patterns, which is
// then why these lack an argument. Named files have probes that match.
func (t *targets) unknown(err error) string {
	patterns := t.options.patterns
	if t.definitions == nil || len(t.selections) > 0 || !strings.Contains(err.Error(), " has no ") {
		return ""
	}
	for probe := range t.definitions.Probes() {
		if pattern.MatchAny(patterns, probe.Provider, probe.Name) {
			return ""
		}
	}
	return defs.NoMatch(defs.Or(patterns), "the definitions", nil) +
		t.definitions.Never(patterns) + "; "
}

// Numbers of capabilities, from linux/capability.h.
const (
	capSysAdmin = 21
	capPerfmon  = 38
	capBPF      = 39
)

func advice(cause error) string {
	have := capabilities()
	missing, verb := missingCapabilities(have), "are"
	switch {
	case len(missing) == 0 && have&(1<<capSysAdmin) == 0:
		return fmt.Sprintf("%v, although CAP_BPF and CAP_PERFMON are there: --stats needs "+
			"CAP_SYS_ADMIN, and so does attaching by perf events (kernels since July 2025 without "+
			"uprobe_multi links, and before Linux 5.8); run it as root, for example with sudo",
			cause)
	case len(missing) == 0:
		return fmt.Sprintf("%v, although CAP_SYS_ADMIN is there: "+
			"by the rules of a container, or a kernel in lockdown mode", cause)
	case len(missing) == 1:
		verb = "is"
	}
	return fmt.Sprintf("%s %s missing; run it as root, for example with sudo",
		strings.Join(missing, " and "), verb)
}

// version says which build this is, and what this kernel and user allow.
func version() string {
	text := commandline.Version("usdttrace")
	mode, err := usdt.ModeAuto.Resolve()
	if missing := missingCapabilities(capabilities()); err != nil && len(missing) > 0 {
		return text + "how this kernel attaches is not known without " + strings.Join(missing, " and ") +
			": run it as root\n"
	}
	if err != nil {
		return text + fmt.Sprintf("this kernel cannot attach: %v\n", err)
	}
	text += "this kernel attaches " + map[usdt.Mode]string{
		usdt.ModeMulti:       "all sites of a file by one uprobe_multi link",
		usdt.ModeSingle:      "by perf events with BPF cookies (uprobe_multi: Linux 6.6)",
		usdt.ModeSingleIPMap: "by perf events (BPF cookies: Linux 5.15)",
	}[mode]
	if missing := missingCapabilities(capabilities()); len(missing) > 0 {
		text += "; missing for it: " + strings.Join(missing, " and ")
	}
	return text + "\n"
}

// missingCapabilities names those that tracing needs: CAP_SYS_ADMIN contains
// them.
func missingCapabilities(have uint64) (missing []string) {
	if have&(1<<capBPF|1<<capSysAdmin) == 0 {
		missing = append(missing, "CAP_BPF")
	}
	if have&(1<<capPerfmon|1<<capSysAdmin) == 0 {
		missing = append(missing, "CAP_PERFMON")
	}
	return missing
}

// capabilities are those that this process can use.
func capabilities() uint64 {
	status, _ := os.ReadFile("/proc/self/status") // if that fails, all are missing
	return effectiveCapabilities(status)
}

// effectiveCapabilities reads the line CapEff of /proc/PID/status.
func effectiveCapabilities(status []byte) uint64 {
	_, after, _ := strings.Cut(string(status), "\nCapEff:")
	line, _, _ := strings.Cut(after, "\n")
	set, _ := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return set
}

// warnSkipped names the sites of a file that match but are not watched.
func (t *tracer) warnSkipped(a interface {
	Skipped() ([]*usdt.SiteError, int)
}, file string) {
	skipped, count := a.Skipped()
	for _, site := range skipped {
		var note *elffile.NoteError
		if errors.As(site.Err, &note) { // which names the probe
			t.messages.WarnOf("skipped sites", "%s: skipped %v", file, note)
			continue
		}
		t.messages.WarnOf("skipped sites", "%s: skipped probe %s:%s at %#x: %v",
			file, site.Provider, site.Name, site.Location, site.Err)
	}
	t.messages.More("skipped sites", count-len(skipped))
}

// warnShared names the probes that are watched at an instruction which belongs
// to another probe, too.
func (t *tracer) warnShared(a *trace.Attachment) {
	known := make(map[uint64]bool)
	for _, site := range a.Sites() {
		if len(site.SameInstruction) > 0 && !known[site.Location] {
			known[site.Location] = true
			t.messages.WarnOf("shared instructions", "%s: the file has %s at one instruction: "+
				"a hit of one is a hit of each", a.Path(), strings.Join(site.SameInstruction, " and "))
		}
	}
}

// mapsPatience is how long reading the mappings of a process may take: they can
// be locked.
const mapsPatience = 100 * time.Millisecond

// warnTwice says if a process has loaded a file twice (dlmopen) that has
// semaphores: the kernel counts those of one copy, and the other one takes its
// probes for unused.
func (t *tracer) warnTwice(a *trace.Attachment, pid int) {
	hasSemaphore := func(s *trace.Site) bool { return s.SemaphoreOffset != 0 }
	if pid == 0 || !slices.ContainsFunc(a.Sites(), hasSemaphore) {
		return
	}
	var files []*procfs.MappedFile
	if !deadline.One(t.ctx, mapsPatience, func() {
		files, _ = procfs.Files("", pid) // none if the process has ended
	}, nil) {
		return // it may still write
	}
	copies := make(map[uint64]int) // of the code at an offset
	for _, file := range files {
		for _, site := range a.Sites() {
			if file.Path != a.Path() || !hasSemaphore(site) {
				continue
			}
			for _, m := range file.Mappings {
				if _, ok := m.Address(site.Offset); ok {
					copies[site.Offset]++
				}
			}
			if copies[site.Offset] > 1 {
				t.messages.WarnOf("files loaded twice", "process %d has loaded %s %d times: hits of %s:%s and "+
					"other probes with semaphores come from one of the copies only", pid, a.Path(),
					copies[site.Offset], site.Provider, site.Name)
				return
			}
		}
	}
}

// warnLeftOut reports what could not be read of a process. That is an error if
// the process was asked for: among all processes some can never be read.
// Otherwise a process that changed while it was read is not reported: it is
// read again.
func (t *tracer) warnLeftOut(err error, isAskedFor bool) {
	switch {
	case isAskedFor:
		t.warnFailed(err)
	case errors.Is(err, proc.ErrAccess):
		// Nearly every machine has some, as of a sandbox: warnDenied reports
		// them.
		t.denied.Add(1)
	case !errors.Is(err, procfs.ErrChanged):
		t.messages.WarnOf("left out: "+commandline.Cause(err), "left out: %v", err)
	}
}

// warnDenied says how many processes could not be read, if it matters: nothing
// was found in the others, or they are many.
func (t *tracer) warnDenied(isNothing bool) {
	if n := int(t.denied.Load()); n > 0 && (isNothing || n > fewDenied) {
		why := "which only their users and root may read (or CAP_SYS_PTRACE; hidepid on the " +
			"proc file system denies it too)"
		if os.Geteuid() == 0 {
			why = "denied to this root (it lacks CAP_SYS_PTRACE, or is in a sandbox)"
		}
		t.messages.Warn("left out: %s, %s",
			strings.Replace(plural(n, "process"), "processs", "processes", 1), why)
		t.denied.Store(0)
	}
}

// fewDenied is how many processes are denied even to root on many machines.
const fewDenied = 3

// term is a key, a value that is aggregated, or an argument that points to what
// is shown.
type term struct {
	flag, text string
	pointer    bool // only whether it is one
	of         role // of the calls that are asked for, 0 for any probe
}

// role is what probes are of calls.
type role uint8

const (
	startsCalls role = 1 << iota
	endsCalls
)

func (o *options) terms() (all []term) {
	add := func(flag, text string, of role) {
		if text != "" {
			all = append(all, term{flag: flag + " " + text, text: text, of: of})
		}
	}
	of := func(text string) role {
		switch {
		case o.latency == nil:
		case strings.HasPrefix(strings.TrimPrefix(text, "str("), "start."):
			return startsCalls
		case len(o.probes) == 0 && !o.isOfCall(text):
			return endsCalls
		}
		return 0
	}
	for _, by := range o.by {
		if at := of(by); at == startsCalls || !o.count {
			add("--by", by, at)
		} else {
			add("--by", by, 0)
		}
	}
	add("--sum", o.sum, of(o.sum))
	add("--hist", o.hist, of(o.hist))
	for _, c := range o.captures {
		if n, ok := argumentNumber(c.Arg); ok {
			flag := fmt.Sprintf("--%s %d", captureFlag(&c), n)
			all = append(all, term{flag: flag, text: c.Arg}, term{flag: flag, text: c.Arg, pointer: true})
		} else {
			add("--"+captureFlag(&c), c.Arg, 0)
		}
		add("--"+captureFlag(&c)+" "+c.Arg+" by", c.Length, 0)
	}
	return all
}

// checkArguments fails if none of the files that are named has an argument that
// is to be shown, to be added up or to be a key. Single sites without it are
// left out.
func (t *tracer) checkArguments() error {
	roles := t.targets.roles()
	for _, sel := range t.targets.selections {
		pointer := 8
		if sel.File().Header().Class == elf.ELFCLASS32 {
			pointer = 4
		}
		for _, site := range sel.Sites() {
			t.targets.addLacking(&site, pointer, roles)
		}
	}
	for _, term := range t.options.terms() {
		switch err := t.targets.lacking[term]; {
		case err == nil:
		case term.pointer: // nothing will be shown of what it points to
			t.messages.Warn("%s: %v", term.flag, err)
		default:
			return fmt.Errorf("%s: %w", term.flag, err)
		}
	}
	return nil
}

// checkSum fails for the sum of an enumeration, whose numbers stand for names.
func (t *tracer) checkSum() error {
	o := t.options
	isEnum := false
	look := func(probe *defs.Probe) (isOther bool) {
		n, ok := argumentIndex(strings.TrimPrefix(o.sum, "start."), probe)
		if !ok || n >= len(probe.Arguments) {
			return false
		}
		a := &probe.Arguments[n]
		isEnum = isEnum || a.Values != nil
		return a.Values == nil || a.Type == "bool"
	}
	if o.sum == "" || t.targets.definitions == nil {
		return nil
	}
	if o.latency != nil && len(o.callArguments) > 0 {
		if pair, err := parsePair(o.pair); err == nil {
			call, _ := t.targets.definitions.Call(pair)
			if look(&defs.Probe{Arguments: call.Arguments}) {
				return nil
			}
		}
	}
	for probe := range t.targets.definitions.Probes() {
		if pattern.MatchAny(o.patterns, probe.Provider, probe.Name) && look(&probe) {
			return nil
		}
	}
	if !isEnum {
		return nil
	}
	return fmt.Errorf("--sum %s: the numbers of an enumeration stand for names, and their sum for nothing: "+
		"--by %[1]s, without --sum, counts each", o.sum)
}

// addLacking keeps why a site lacks an argument that a term names, unless
// another site has it. The reason of the last site with that argument counts.
// pointer is the size of a pointer, 0 if it is not known.
func (t *targets) addLacking(site *usdt.Site, pointer int, roles map[[2]string]role) {
	for _, term := range t.options.terms() {
		before, known := t.lacking[term]
		if known && before == nil || term.pointer && pointer == 0 ||
			term.of != 0 && roles != nil && roles[[2]string{site.Provider, site.Name}]&term.of == 0 {
			continue
		}
		if note := t.noteOf(site, term.text); note != "" {
			t.notes[term.flag] = note
		}
		err := t.lackingAt(site, term)
		if n, _ := argumentNumber(term.text); term.pointer && err == nil {
			if arg := &site.Args[n]; int(arg.Size) != pointer || arg.Float {
				err = fmt.Errorf("%s of %s is not a pointer: %s", term.text, siteName(site),
					argumentType(arg))
			}
		}
		if before == nil || !errors.As(err, new(noSuchArgument)) {
			t.lacking[term] = err
		}
	}
}

// roles returns what probes are of the calls that are asked for. It is nil if
// any may be all: several probes start and end a call of the definitions.
func (t *targets) roles() map[[2]string]role {
	roles := make(map[[2]string]role)
	for _, pattern := range t.options.pairs() {
		if _, several := t.definitions.Call(pattern); several {
			return nil
		}
		for _, pair := range t.definitions.NamedPairs(t.listing(), pattern) {
			roles[[2]string{pair.Start.Provider, pair.Start.Name}] |= startsCalls
			for _, done := range append(pair.Failed, pair.Done) {
				roles[[2]string{done.Provider, done.Name}] |= endsCalls
			}
		}
	}
	return roles
}

// noSuchArgument is an argument that a site does not have.
type noSuchArgument struct {
	name string
	of   role
}

func (a noSuchArgument) Error() string {
	switch a.of {
	case startsCalls:
		return "no probe that starts a call has " + a.name
	case endsCalls:
		return fmt.Sprintf("no probe that ends a call has %s (start.%s is of the start)", a.name, a.name)
	}
	return "no site has " + a.name
}

// word is a name in a term: of an argument, without its members.
var word = regexp.MustCompile(`global\.\w+(?:->[\w.]+)*|(\w+)(?:->[\w.]+)*`)

// lackingAt returns why an argument that a term names is not available at a
// site, nil if all are.
func (t *targets) lackingAt(site *usdt.Site, term term) error {
	machine, err := sys.KernelMachine()
	if err != nil {
		return err
	}
	definition := t.definition(site)
	for _, found := range word.FindAllStringSubmatch(term.text, -1) {
		name := found[1] // "" of a variable
		switch n, ok := argumentIndex(name, &definition); {
		case !ok && t.isArgument(name):
			at := []elfnote.Pattern{elfnote.Exact(site.Provider, site.Name)}
			if t.definitions.Key(name, at) == "" {
				return noSuchArgument{name, term.of}
			}
		case !ok: // another word
		case n >= len(site.Args):
			return noSuchArgument{name, term.of}
		case site.Args[n].Err != nil:
			return fmt.Errorf("%s of %s is not available: %w", name, siteName(site),
				site.Args[n].Err)
		case !argcode.Readable(&site.Args[n], machine):
			return fmt.Errorf("%s of %s is not a number: %s", name, siteName(site), site.Args[n])
		}
	}
	return nil
}

// expressionWords have a meaning of their own in terms: no argument is meant.
var expressionWords = []string{"str", "start", "pid", "tid", "uid", "gid", "cpu", "cgroup",
	"container", "comm", "cookie", "provider", "probe", "site", "stack", "duration", "failed"}

// isArgument reports whether a word in a term is the name of an argument of
// some probe, and neither a word of the language nor an argument of the call
// that is measured.
func (t *targets) isArgument(name string) bool {
	if t.definitions == nil || slices.Contains(t.options.callArguments, name) ||
		slices.Contains(expressionWords, name) {
		return false
	}
	for probe := range t.definitions.Probes() {
		if slices.ContainsFunc(probe.Arguments,
			func(a defs.Argument) bool { return a.Name == name }) {
			return true
		}
	}
	return false
}

func (t *targets) definition(site *usdt.Site) (probe defs.Probe) {
	if t.definitions != nil {
		probe, _ = t.definitions.Probe(site.Provider, site.Name, len(site.Args))
	}
	return probe
}

// slowed says which probes make calls seem longer: those that are attached so
// that the probes of the calls fire.
func (t *targets) slowed() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for _, helper := range t.helpers {
		provider, name, _ := strings.Cut(helper, ":")
		when := "it is reached"
		if t.definitions != nil {
			text, _ := t.definitions.Fires(provider, name)
			when = cmp.Or(text, when)
		}
		lines = append(lines, fmt.Sprintf("times include the cost of %s, which is attached because these calls "+
			"need it: it fires when %s, and what fires it often seems slower than it is",
			terminal.Escape(helper), when))
	}
	return strings.Join(lines, "\n")
}

// noteOf returns what to know about the values of an argument, if there is
// something.
func (t *targets) noteOf(site *usdt.Site, term string) string {
	definition := t.definition(site)
	n, ok := argumentIndex(strings.TrimPrefix(term, "start."), &definition)
	if !ok || n >= len(definition.Arguments) || definition.Arguments[n].Note == "" {
		return ""
	}
	return fmt.Sprintf("%s of %s: %s", term, siteName(site), definition.Arguments[n].Note)
}

// warnArguments names the arguments that are to be shown or aggregated but that
// no site of what processes have mapped so far has.
func (t *tracer) warnArguments() {
	t.targets.mu.Lock()
	notes, lacking := maps.Clone(t.targets.notes), maps.Clone(t.targets.lacking)
	t.targets.mu.Unlock() // a message may wait for its reader
	for _, flag := range slices.Sorted(maps.Keys(notes)) {
		t.messages.Note("%s", notes[flag])
	}
	sites, _ := t.targets.watched()
	if sites == 0 || len(t.targets.selections) > 0 {
		return
	}
	for _, term := range t.options.terms() {
		if err := lacking[term]; err != nil {
			t.messages.Warn("%s: %v", term.flag, err)
		}
	}
}

// whyNothing says why nothing came, a line for each reason. The calls that were
// looked for may have hung before: only a command begins after the tracing.
func (t *tracer) whyNothing(l *losses) (lines []string) {
	if len(t.going) > 0 {
		return nil // these calls are printed
	}
	return append(t.reasons(l, t.reaches), t.notSeen()...)
}

// notSeen says what cannot come. A command begins after the tracing, and some
// calls that go on can be seen from outside.
func (t *tracer) notSeen() []string {
	o := t.options
	if !o.measuresCalls() || t.command != nil ||
		!slices.ContainsFunc(o.pairs(), func(pair defs.PairPattern) bool {
			call, _ := t.targets.definitions.Call(pair)
			return len(call.Open) == 0
		}) {
		return nil
	}
	return []string{"calls that had begun before are not seen"}
}

// whyNothingYet says why nothing has come so far, as whyNothing, but for what
// takes a look at all processes.
func (t *tracer) whyNothingYet() []string {
	l := t.askLosses().since(t.before)
	if l.err != nil {
		return nil // the summary has the error
	}
	return append(t.reasons(&l, nil), t.notSeen()...)
}

// fires returns when probes fire that do not fire by themselves. No hint
// advises the pair that was asked for.
func (t *tracer) fires() []string {
	t.targets.mu.Lock()
	fires := slices.Clone(t.targets.fires)
	t.targets.mu.Unlock()
	for _, pair := range t.options.pairs() {
		fires = slices.DeleteFunc(fires, func(hint string) bool {
			_, when, _ := strings.Cut(hint, " fires ")
			return strings.Contains(when, pair.String())
		})
	}
	return fires
}

// reasons says why nothing came. Without a look at who can pass the probes, it
// leaves out why none of a pattern was passed.
func (t *tracer) reasons(l *losses, look func() []reach) (lines []string) {
	o := t.options
	fires := t.fires()
	var starts []string
	if l.Unmatched > 0 {
		starts = fires // perhaps of the start that is missing
	}
	switch {
	case l.filtered && o.slow != nil:
		calls := "of the calls that began and ended meanwhile, "
		if o.where != "" {
			calls += "and for which --where holds, "
		}
		if l.Replaced+l.Unmatched+l.Overlapped > 0 {
			calls += "and that were measured, "
		}
		if *o.slow > 0 {
			return []string{fmt.Sprintf("%snone was as long as --slow %v", calls, *o.slow)}
		}
		lines = append(starts, "calls began and ended meanwhile, but --where holds for none")
		if strings.Contains(o.where, "failed") && !t.knowsFailures() {
			lines = append(lines, "no probe is known at which they end if they fail: PAIR|PROBE names one")
		}
		return lines
	case l.filtered:
		fired := "probes fired, but --where holds for no hit"
		if l.Overlapped > 0 {
			fired = "probes fired, but --where holds for no call that was measured"
		}
		lines = append(starts, fired)
		if strings.Contains(o.where, "str(") {
			lines = append(lines, "a null pointer equals no string, nor does one that cannot be read: "+
				"perhaps "+notInMemory)
		}
		return lines
	case l.Unmatched > 0:
		if o.match != "" && l.Replaced+l.Killed+l.Exited+l.Left+l.Unfinished > 0 {
			starts = append(starts, "no end has the value of a start before it: --match compares values within a "+
				"process, and calls that end in another one are not measured")
		}
		return starts
	case l.Events+l.Unreadable+l.SelfUnknown+l.Starts+l.NotSampled+l.Left+l.Overlapped+l.Replaced+
		l.Unfinished+l.Killed+l.Exited > 0:
		return nil // the summary says what came of the hits
	}
	var reasons []string
	var reaches []reach
	if look != nil {
		reaches = look()
	}
	patterns := make(map[string][]string) // by the reason
	for i, p := range o.patterns {
		if look == nil {
			break
		}
		reason := t.whySilent(i, reaches)
		if patterns[reason] == nil {
			reasons = append(reasons, reason)
		}
		if name := t.targets.typed(p); !slices.Contains(patterns[reason], name) {
			patterns[reason] = append(patterns[reason], name)
		}
	}
	for _, reason := range reasons {
		names := patterns[reason]
		if more := len(names) - maxSilent; more > 0 {
			names = append(names[:maxSilent:maxSilent], fmt.Sprintf("%d more", more))
		}
		lines = append(lines, strings.Join(names, ", ")+": "+reason)
	}
	return append(append(lines, t.otherFiles(false)...), withEnvironment(fires, reaches)...)
}

// typed returns the pair that a pattern is of, or the pattern.
func (t *targets) typed(p elfnote.Pattern) string {
	for _, pair := range t.options.pairs() {
		if slices.ContainsFunc(t.definitions.Patterns(pair),
			func(of elfnote.Pattern) bool { return of.String() == p.String() }) {
			return pair.String()
		}
	}
	return p.String()
}

// maxSilent is how many patterns are named at most for one reason.
const maxSilent = 4

// nothing says that no probe matches any of the patterns.
func (t *targets) nothing(patterns []elfnote.Pattern, where string) error {
	if t.options.everyProbe {
		return errors.New("no probes in " + where)
	}
	var names []string
	for _, p := range patterns {
		name := t.typed(p)
		if strings.Contains(name, "..") { // which end is missing
			name = p.String()
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	nearest, absent := t.absent(patterns)
	return errors.New(defs.NoMatch(strings.Join(names, " or "), where, nearest) + absent)
}

// absent returns the probes that nearly match, and why there are none that do,
// as far as that is known: what a process has of the same provider, or which
// builds have the probes.
func (t *targets) absent(patterns []elfnote.Pattern) (nearest []string, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.nearest) == 0 && len(t.siblings) > 0 {
		text = " (there are: " + strings.Join(t.siblings, ", ") + ")"
	}
	if never := t.definitions.Never(patterns); never != "" {
		text += never
	} else if len(t.nearest)+len(t.siblings) == 0 {
		text = t.definitions.Missing(patterns)
	}
	return t.nearest, text
}

// maxSiblings is how many probes of the wanted provider are named.
const maxSiblings = 8

// addSiblings keeps probes of a file whose provider a pattern names.
func (t *targets) addSiblings(file *elfnote.File, patterns []elfnote.Pattern) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for site, err := range file.Sites() {
		for _, p := range patterns {
			provider, _, _ := strings.Cut(p.String(), ":")
			name := site.Provider + ":" + site.Name
			if err != nil || provider != site.Provider || slices.Contains(t.siblings, name) {
				continue
			}
			if len(t.siblings) == maxSiblings {
				t.siblings = append(t.siblings, "...")
			}
			if len(t.siblings) > maxSiblings {
				return
			}
			t.siblings = append(t.siblings, terminal.Escape(name))
		}
	}
}

// near keeps the names of probes that an error gives as spelled most like the
// patterns.
func (t *targets) near(err error) {
	var notFound *usdt.NotFoundError
	if !errors.As(err, &notFound) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nearest = t.definitions.AddNearest(t.nearest, notFound.Probes, notFound.Patterns)
}

// addNearest keeps the names of a file's probes that are spelled most like the
// patterns, if none matches.
func (t *targets) addNearest(file *elfnote.File, patterns []elfnote.Pattern) {
	if sel, err := usdt.Select(usdt.Target{ELF: file}, patterns...); err != nil {
		t.near(err)
		if isNothing(err) {
			t.addSiblings(file, patterns)
		}
	} else {
		sel.Close()
	}
}

// nearestPatience and allPatience are how long names are searched in the files
// of one process, and of all.
const (
	nearestPatience = 500 * time.Millisecond
	allPatience     = 3 * time.Second
)

// addNearest keeps, in to, the names of probes that nearly match in the files
// of a process, or of all if pid is 0. What cannot be read has no names to
// offer.
func (t *tracer) addNearest(to *targets, pid int, patterns ...elfnote.Pattern) {
	patience := allPatience
	if pid != 0 {
		patience = nearestPatience
	}
	deadline.One(t.ctx, patience, func() {
		_ = commandline.EachFile(pid, func(pair *procwatch.ProcessFile) {
			to.addNearest(pair.File.ELF(), patterns)
		}, nil)
	}, nil)
}

// warnUnmatched names the patterns that no probe matches. so is what may change
// that: " yet", or nothing.
func (t *tracer) warnUnmatched(so string) {
	t.targets.mu.Lock()
	matched := slices.Clone(t.targets.matched)
	t.targets.mu.Unlock() // a message may wait for its reader
	for i, p := range t.options.patterns {
		if !matched[i] {
			like := &targets{definitions: t.targets.definitions}
			if len(t.targets.selections) == 0 {
				t.addNearest(like, t.options.pid, p)
			}
			for _, sel := range t.targets.selections {
				like.addNearest(sel.File(), []elfnote.Pattern{p})
			}
			like.mu.Lock() // a call that did not return in time may still write
			t.messages.Warn("no probe matches %s%s%s", p, so, defs.Nearest(like.nearest))
			like.mu.Unlock()
		}
	}
}

// maxFires is how many hints are kept about when probes fire.
const maxFires = 4

// addFires keeps when a probe fires, if that is not always.
func (t *targets) addFires(site *trace.Site) {
	if t.definitions == nil || len(t.fires) == maxFires {
		return
	}
	if _, text := t.definitions.Fires(site.Provider, site.Name); text != "" {
		hint := terminal.Escape(probeName(site)) + " fires " + text
		if !slices.ContainsFunc(t.fires,
			func(s string) bool { return strings.HasSuffix(s, " fires "+text) }) {
			t.fires = append(t.fires, hint)
		}
	}
}
