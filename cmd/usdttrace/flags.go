// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// short is the text of -h: one screen with the most important.
//
//go:embed short.txt
var short string

// usage is the text of --help. The man page, the completion in shells and
// docs/usdttrace.md are made of it.
//
//go:embed help.txt
var usage string

// completions has the words that can stand for placeholders of the help, beside
// those that flags choose from.
func completions() map[string][]string {
	numbers := []string{"pid", "tid", "uid", "gid", "cpu", "cgroup", "cookie", "arg0", "arg1",
		"arg2", "arg3"}
	return map[string][]string{
		"KEY": append([]string{"comm", "probe", "provider", "site", "container", "stack",
			"str(arg0)", "str(arg1)"}, numbers...),
		"TERM":        numbers,
		"TERM[=TERM]": numbers,
		"HOW":         {unwindDWARF, unwindFP},
	}
}

// options are what a command line asks for, by subject. Each subject declares
// its flags, and says what they do not go with.
type options struct {
	args []string // the command line

	scopeFlags
	listFlags
	callFlags
	eventFlags
	tableFlags
	stackFlags
	outputFlags
}

// rule is a combination of flags that is an error.
type rule struct {
	isBroken bool
	text     string
}

// scopeFlags say what is watched, and how it is attached to.
type scopeFlags struct {
	files    []string
	probes   []elfnote.Pattern // of -e, and of words that are patterns
	patterns []elfnote.Pattern // all
	// everyProbe says that -l lists all, for want of a pattern.
	everyProbe bool
	pid        int
	follow     bool // the descendants of the process, too
	all        bool
	command    []string // nil without --
	where      string
	names      []string // files with definitions
	limits     watch.Limits
	after      time.Duration // that a process has run before it is attached
	mode       usdt.Mode
	noLease    bool
}

func (o *scopeFlags) declare(flags *commandline.Flags) {
	flags.Patterns(&o.probes, "e", "probe")
	flags.Func(o.setPID, "p", "pid")
	flags.Switch(&o.follow, "f", "follow")
	flags.Switch(&o.all, "a", "all")
	flags.Instead("no such flag: the command is written at the end, "+
		"as in usdttrace PATTERN -- COMMAND ARGUMENT", "c", "command")
	flags.Rest = func(words []string) error {
		if o.command = words; len(words) == 0 {
			return errors.New("no COMMAND after --")
		}
		return nil
	}
	flags.Func(func(condition string) error {
		if o.where != "" {
			return fmt.Errorf("is given a second time: join them, as in --where '(%s) && (%s)'", o.where, condition)
		}
		o.where = condition
		return nil
	}, "where")
	flags.Texts(&o.names, "names")
	flags.List(o.addLimit, "limits")
	flags.Time(&o.after, "after")
	flags.OneOf("MODE", []string{"multi", "single", "single-ip"}, func(word string) {
		o.mode = map[string]usdt.Mode{"multi": usdt.ModeMulti, "single": usdt.ModeSingle,
			"single-ip": usdt.ModeSingleIPMap}[word]
	}, "mode")
	flags.Switch(&o.noLease, "no-lease")
}

// rules returns those of what is watched. wrongFile is a word that was taken
// for a file, and may have been meant for a probe.
func (o *scopeFlags) rules(wrongFile string) []rule {
	targets := 0
	for _, given := range []bool{o.pid != 0, o.all, o.command != nil} {
		if given {
			targets++
		}
	}
	return []rule{
		{o.follow && o.pid == 0 && o.command == nil, "-f goes with -p PID: " +
			"it watches the descendants of the process, too, as -- COMMAND always does"},
		{o.limits != watch.Limits{} && (len(o.files) > 0 || !o.all && o.pid == 0),
			"--limits goes with -a, or with -p and no FILE: " +
				"what is named is attached whatever its size"},
		{o.after > 0 && (len(o.files) > 0 || targets == 0),
			"--after goes with -a, -p and -- COMMAND, and no FILE: " +
				"what is named is attached before a process starts"},
		{targets > 1, "-p, -a and -- COMMAND exclude each other"},
		{targets == 0 && len(o.files) == 0,
			"nothing to watch: name a file or library, or use -p PID, -- COMMAND or -a"},
		{len(o.patterns) == 0 && wrongFile != "",
			"no PATTERN of probes given: " + mistaken(wrongFile)},
		{len(o.patterns) == 0, "no PATTERN of probes given; '*' is all of them"},
	}
}

// listFlags only list.
type listFlags struct {
	list      bool
	listPairs bool
	listed    []defs.PairPattern // of --pairs and --slow
}

func (o *listFlags) declare(flags *commandline.Flags) {
	flags.Switch(&o.list, "l", "list")
	flags.Switch(&o.listPairs, "pairs")
	flags.Instead("no such flag: -l lists what would be watched, with its arguments, "+
		"--stats says what watching costs, and usdtlist -v what probes mean", "v", "verbose")
}

func (o *options) listRules() []rule {
	return []rule{
		{(o.list || o.listPairs) &&
			(o.aggregates() || o.list && o.listPairs || o.slow != nil || o.where != ""),
			"-l and --pairs only list: they do not go with each other, nor with --slow, " +
				"--where, --count, --sum, --hist, --latency and profiles"},
	}
}

// callFlags print calls.
type callFlags struct {
	slow   *time.Duration // nil for hits instead of calls
	match  string         // what starts and ends have in common
	starts bool           // stacks of the starts of calls
}

func (o *callFlags) declare(flags *commandline.Flags) {
	flags.Func(func(s string) (err error) {
		o.slow = new(time.Duration)
		*o.slow, err = commandline.ParseLeast(s)
		return err
	}, "slow")
	flags.Once(&o.match, "match")
	flags.Switch(&o.starts, "start-stack")
}

func (o *options) callRules() []rule {
	return []rule{
		{o.slow != nil && o.aggregates(), "--slow prints calls: it does not go with --count, --sum, " +
			"--hist, --latency and profiles"},
		{o.starts && o.slow == nil && (o.chromeTrace == "" || o.latency == nil),
			"--start-stack goes with --slow, or with --latency and --chrome-trace: " +
				"other hits have one stack, see --stack"},
	}
}

// eventFlags print hits, or calls.
type eventFlags struct {
	captures    []trace.Capture // of --str and --bytes
	stack       bool
	maxEvents   int
	every       int // about one hit in this many is taken, 0 for all
	rate        int // at most this many hits a second on each processor, 0 for all
	buffer      int
	chromeTrace string // the file, "" for none
}

func (o *eventFlags) declare(flags *commandline.Flags) {
	flags.List(func(s string) error { return o.addCapture(s, false) }, "str")
	flags.List(func(s string) error { return o.addCapture(s, true) }, "bytes")
	flags.Switch(&o.stack, "stack")
	flags.Func(setCount(&o.maxEvents), "n", "max-events")
	flags.Func(setCount(&o.every), "every")
	flags.Func(setCount(&o.rate), "rate")
	flags.Func(setSize(&o.buffer, 1<<30, "1G, with k, M or G"), "buffer")
	flags.Text(&o.chromeTrace, "chrome-trace")
}

func (o *options) eventRules() []rule {
	return []rule{
		{o.chromeTrace != "" && (o.aggregates() || o.list || o.listPairs || o.json || o.outputFile != ""),
			"--chrome-trace is about events, and takes the place of the output: it does not go " +
				"with --count, --sum, --hist, --pprof, --folded, --flamegraph, -l, --pairs, " +
				"--json and -o"},
		{o.every > 0 && o.rate > 0, "--every and --rate exclude each other"},
		{o.aggregates() && (o.stack || o.maxEvents > 0 || len(o.captures) > 0),
			"--stack, --str, --bytes and -n (--max-events) are about single events: where hits " +
				"are added up, --by stack and --by 'str(arg0)' show these, and --duration ends"},
	}
}

// tableFlags add hits up.
type tableFlags struct {
	count bool
	sum   string
	// sumIsFloat says that sum is an argument that is a float at a site.
	sumIsFloat bool
	hist       string
	linear     *trace.Histogram
	pair       string // of --latency
	self       bool   // of calls, the time without the calls inside them
	latency    *trace.Latency
	// callArguments are those of the call of several probes that latency is.
	callArguments []string
	by            []string
	interval      time.Duration
	live          bool   // tables are drawn in place
	sort          string // "" for the total, or the count without one
	top           int    // rows that are printed, 0 for all
	maxKeys       int    // 0 for defaultMaxKeys
	dialect       string // of --normalize
	normalize     func(text string) string
}

func (o *tableFlags) declare(flags *commandline.Flags) {
	flags.Switch(&o.count, "count")
	flags.Once(&o.sum, "sum")
	flags.Once(&o.hist, "hist")
	flags.Func(o.setLinear, "linear")
	flags.Func(func(pair string) error {
		if o.pair != "" {
			return errors.New("is given a second time: run usdttrace once for each, or take --slow, " +
				"which takes several pairs")
		}
		o.pair = pair
		return nil
	}, "latency")
	flags.Switch(&o.self, "self")
	flags.Texts(&o.by, "by")
	flags.Time(&o.interval, "interval")
	flags.Switch(&o.live, "live")
	flags.OneOf("COLUMN", []string{"count", "average", "p50", "p90", "p99", "max", "total"},
		func(word string) { o.sort = word }, "sort")
	flags.Func(setCount(&o.top), "top")
	flags.Func(setCount(&o.maxKeys), "max-keys")
	flags.OneOf("DIALECT", []string{"sql", "mysql"},
		func(word string) { o.dialect, o.normalize = word, normalizer(word) }, "normalize")
}

func (o *options) tableRules() []rule {
	return []rule{
		{o.live && !o.canBeLive(), "--live draws tables: it does not go with -- COMMAND, " +
			"--slow, --json, -o, --chrome-trace and profiles"},
		{o.csv && (!o.aggregates() || o.json || o.live || o.byStack() || o.linear != nil),
			"--csv is for tables: it goes with --count, --sum, --hist or --latency, but not with " +
				"--json, --live, --by stack and --linear"},
		{o.shapesTables() && o.chromeTrace != "" && !o.aggregates(),
			"--by, --top, --sort, --max-keys and --normalize do not go with --chrome-trace"},
		{o.shapesTables() && !o.aggregates(),
			"--by, --top, --sort, --max-keys and --normalize are for tables: they go with --count, " +
				"--sum, --hist or --latency, as in --latency postgresql:statement --by user"},
		{len(commandline.Split(o.sum)) > 1, severalTerms("--sum", o.sum)},
		{len(commandline.Split(o.hist)) > 1, severalTerms("--hist", o.hist)},
		{o.linear != nil && o.hist == "" && o.latency == nil,
			"--linear goes with --hist or --latency"},
		{o.self && (o.latency == nil || o.chromeTrace != ""),
			"--self goes with --latency, as in --latency python:function --self --by function, " +
				"and not with --chrome-trace"},
		{o.self && o.profiles() && (len(o.by) != 1 || o.byStack()),
			"--self with --flamegraph, --folded and --pprof shows which calls are inside which: " +
				"--by names them, as in --latency python:function --by function"},
		{o.interval > 0 && !o.aggregates() && o.slow == nil,
			"--interval goes with --count, --sum, --hist, --latency or --slow"},
	}
}

// shapesTables reports whether a flag is given that says what is in a table.
func (o *tableFlags) shapesTables() bool {
	return len(o.by) > 0 || o.top > 0 || o.sort != "" || o.maxKeys > 0 || o.normalize != nil
}

// severalTerms is the error for a list of terms where one is wanted.
func severalTerms(flag, terms string) string {
	return fmt.Sprintf("%s %q: %[1]s takes one TERM, and is given once: run usdttrace once for each", flag, terms)
}

// stackFlags say how stacks are found and named, and which files they are
// written to.
type stackFlags struct {
	way        string // of --unwind
	unwind     int    // bytes of stacks that are copied to be unwound here; 0: the kernel walks them
	debuginfod bool   // fetch debug files that are not here
	lines      bool   // of source files

	pprofFile, foldedFile, flamegraphFile string
}

func (o *stackFlags) declare(flags *commandline.Flags) {
	flags.Text(&o.way, "unwind")
	flags.Switch(&o.debuginfod, "debuginfod")
	flags.Switch(&o.lines, "lines")
	flags.Text(&o.pprofFile, "pprof")
	flags.Text(&o.foldedFile, "folded")
	flags.Func(func(path string) error {
		if ending := filepath.Ext(path); slices.Contains([]string{".svg", ".png", ".pdf"}, ending) {
			return fmt.Errorf("is a page in HTML, which a browser shows under a name such as %s.html",
				strings.TrimSuffix(path, ending))
		}
		o.flamegraphFile = path
		return nil
	}, "flamegraph")
}

// outputFlags say how and how long something is printed.
type outputFlags struct {
	outputFile string // "" for standard output
	format     string
	color      string // "always", "never", "auto" or ""
	json       bool
	csv        bool
	quiet      bool
	stats      bool
	duration   time.Duration
	cleanup    bool
}

func (o *outputFlags) declare(flags *commandline.Flags) {
	flags.Func(o.setOutput, "o", "output")
	flags.Switch(&o.json, "json")
	flags.Switch(&o.csv, "csv")
	flags.OneOf("", []string{"text", "json", "csv"}, func(word string) { o.format = word }, "format")
	flags.OneOf("WHEN", []string{"auto", "always", "never"},
		func(word string) { o.color = word }, "color")
	flags.Switch(&o.quiet, "q", "quiet")
	flags.Switch(&o.stats, "stats")
	flags.Time(&o.duration, "duration")
	flags.Switch(&o.cleanup, "cleanup")
}

func (o *options) followsFamily() bool { return o.follow || o.command != nil }

func (o *options) eventStacks() bool { return o.stack || o.starts }

// byCalls reports whether profiles are of calls, by their names.
func (o *options) byCalls() bool { return o.self && o.profiles() }

func (o *options) byStack() bool { return slices.Contains(o.by, "stack") }

// captureFlag returns the flag of a capture.
func captureFlag(c *trace.Capture) string {
	if c.Bytes {
		return "bytes"
	}
	return "str"
}

// capture returns the capture for an argument of a site, nil for none.
func (o *options) capture(site *trace.Site, arg int) *trace.Capture {
	for i := range o.captures {
		c := &o.captures[i]
		if n, ok := argumentNumber(c.Arg); ok && n == arg || c.Arg == site.Argument(arg).Name {
			return c
		}
	}
	if site.Argument(arg).IsText {
		return &trace.Capture{Max: maxKnownText}
	}
	return nil
}

// aggregates reports whether hits are aggregated rather than printed.
func (o *options) aggregates() bool {
	return o.count || o.sum != "" || o.hist != "" || o.latency != nil && o.chromeTrace == "" ||
		o.profiles()
}

// printsOnStdout reports whether something is printed on standard output.
func (o *options) printsOnStdout() bool {
	return o.outputFile == "" && o.chromeTrace == "" &&
		(o.count || o.sum != "" || o.hist != "" || o.latency != nil || !o.profiles())
}

func (o *options) flags() *commandline.Flags {
	flags := new(commandline.Flags)
	for _, subject := range []interface{ declare(*commandline.Flags) }{&o.scopeFlags, &o.listFlags,
		&o.callFlags, &o.eventFlags, &o.tableFlags, &o.stackFlags, &o.outputFlags} {
		subject.declare(flags)
	}
	flags.Standard("usdttrace", short, usage, completions())
	flags.Answer(version, "version")
	return flags
}

func parseCommandLine(args []string) (*options, error) {
	o := &options{args: args}
	if len(args) > 0 && args[0] == "list" && !commandline.IsFileHere("list") {
		return nil, errors.New("usdttrace has no command list: -l lists what would be watched, " +
			"and usdtlist FILE all that a file has")
	}
	operands, err := o.flags().Parse(args)
	switch {
	case err != nil:
		return nil, err
	case o.cleanup && len(args) > 1:
		return nil, errors.New("--cleanup goes with nothing else")
	case o.cleanup:
		return o, nil
	}
	o.json, o.csv = o.json || o.format == "json", o.csv || o.format == "csv"
	for _, parse := range []func() error{o.parseLatency, o.parseUnwind,
		func() error { return o.parseOperands(operands) }} {
		if err := parse(); err != nil {
			return nil, err
		}
	}
	if o.live {
		o.useLive()
	}
	return o, o.check()
}

// parseOperands divides the other words into patterns, and files or libraries.
func (o *options) parseOperands(words []string) error {
	var patterns []string
	for _, word := range words {
		if !commandline.IsPattern(word, o.pid != 0 || o.command != nil) {
			o.files = append(o.files, word)
		} else {
			patterns = append(patterns, commandline.Split(word)...)
		}
	}
	switch others := len(patterns)+len(o.probes) > 0; {
	case (o.slow != nil || o.listPairs) && len(o.probes) > 0:
		return errors.New("-e does not go with --slow and --pairs, which take pairs of probes")
	case o.slow != nil || o.listPairs:
		return o.parsePairs(patterns)
	case others && o.latency != nil && !o.count && o.sum == "" && o.hist == "" &&
		o.chromeTrace == "":
		return errors.New("--latency watches the pair that it names: " +
			"other patterns are for --count, --sum and --hist beside it")
	}
	err := commandline.AddPatterns(&o.probes, patterns...)
	o.patterns = append(o.patterns, o.probes...)
	return err
}

// check returns the error of the first rule that is broken.
func (o *options) check() error {
	wrongFile := ""
	if i := slices.IndexFunc(o.files, commandline.IsMistaken); i >= 0 {
		wrongFile = o.files[i]
	}
	if o.list && len(o.patterns) == 0 && wrongFile == "" {
		o.patterns, o.everyProbe = []elfnote.Pattern{elfnote.MustParsePattern("*")}, true
	}
	for _, rule := range slices.Concat(o.scopeFlags.rules(wrongFile), o.listRules(), o.callRules(),
		o.tableRules(), o.eventRules()) {
		if rule.isBroken {
			return errors.New(rule.text)
		}
	}
	return o.checkSampling()
}

func (o *options) checkSampling() error {
	if o.samples() && o.aggregates() && !o.fromEvents() {
		return errors.New("--every and --rate do not go with " +
			cmp.Or(o.needsKernel(), "--count, --sum and --hist (but with --count --by stack)") +
			": what is counted in the kernel is counted of all hits")
	}
	return nil
}

// mistaken says of a word that was taken for a file how a probe is written.
func mistaken(word string) string {
	example := "'*:" + word + "'"
	if !strings.Contains(word, "__") {
		example = "'" + word + ":*' or " + example
	}
	return word + " was taken for a file; a probe is written PROVIDER:NAME, as in " + example
}

// maxNamed is how many processes of one name are listed.
const maxNamed = 16

func (o *scopeFlags) setPID(s string) error {
	several := func(condition string) error {
		return fmt.Errorf("one process can be given: FILE in place of -p watches all that run it%s, -p PID -f one "+
			"and those that it starts, and -a --where '%s' several, without those that they start",
			oneServer(condition), condition)
	}
	if o.pid != 0 || strings.Contains(s, ",") {
		words := commandline.Split(s)
		if o.pid != 0 {
			words = append([]string{strconv.Itoa(o.pid)}, words...)
		}
		for i, word := range words {
			if _, err := strconv.Atoi(word); err != nil {
				words[i] = "comm == " + strconv.Quote(word)
			} else {
				words[i] = "pid == " + word
			}
		}
		return several(strings.Join(words, " || "))
	}
	pids, err := commandline.ParsePIDs(s)
	switch {
	case err != nil:
		return err
	case len(pids) > 1:
		numbers, more := fmt.Sprint(pids[:min(len(pids), maxNamed)]), ""
		if len(pids) > maxNamed {
			more = fmt.Sprintf(" and %d more", len(pids)-maxNamed)
		}
		text := fmt.Sprintf("these processes have that name: %s%s; ", strings.Trim(numbers, "[]"), more)
		if roots := rootsOf(pids); len(roots) < len(pids) && len(roots) <= maxNamed/4 {
			return fmt.Errorf("%s-p %s -f watches one with those that it has started", text,
				strings.ReplaceAll(strings.Trim(fmt.Sprint(roots), "[]"), " ", " -f, or -p "))
		}
		return fmt.Errorf("%s%w", text, several("comm == "+strconv.Quote(s)))
	}
	o.pid = pids[0]
	return nil
}

// oneServer says how one server of PostgreSQL is selected among several, if a
// condition is about such processes.
func oneServer(condition string) string {
	isServer := condition == `comm == "postgres"`
	for part := range strings.SplitSeq(condition, " || ") {
		if pid, err := strconv.Atoi(strings.TrimPrefix(part, "pid == ")); err == nil {
			p, err := proc.Find("", pid)
			isServer = isServer || err == nil && p.Command == "postgres"
		}
	}
	if !isServer {
		return ""
	}
	return " (of servers of PostgreSQL one by its port: --where 'global.PostPortNumber == 5432')"
}

// rootsOf returns those of some processes that none of the others has started.
func rootsOf(pids []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
		p, err := proc.Find("", pid)
		return err == nil && slices.Contains(pids, p.Parent)
	})
}

func (o *outputFlags) setOutput(s string) error {
	if o.outputFile = s; s == "json" { // other commands take -o json
		return errors.New("-o names a file: --json prints JSON, and ./json is a file of that name")
	}
	return nil
}

func setCount(to *int) func(string) error {
	return func(s string) (err error) {
		if *to, err = strconv.Atoi(s); err != nil || *to <= 0 {
			return errors.New("want a number above 0")
		}
		return nil
	}
}

// addCapture reads N, N:MAX or N:argM; both can be the names of arguments.
func (o *eventFlags) addCapture(s string, bytes bool) error {
	number, length, limited := strings.Cut(s, ":")
	c := trace.Capture{Arg: number, Bytes: bytes}
	arg, err := strconv.Atoi(strings.TrimPrefix(number, "arg"))
	switch {
	case err == nil && arg >= 0:
		c.Arg = fmt.Sprintf("arg%d", arg)
	case number == "" || !isLetter(number[0]):
		return errors.New("want the number of an argument, from 0, or its name")
	}
	switch {
	case limited && length != "" && isLetter(length[0]):
		c.Length = length
		c.Max = maxCaptureByLength
	case limited:
		if c.Max, err = strconv.Atoi(length); err != nil || c.Max <= 0 {
			return errors.New("want a number of bytes after the colon, or an argument")
		}
		if c.Max > maxCapture {
			return fmt.Errorf("at most %d bytes can be shown", maxCapture)
		}
	case bytes:
		return errors.New("want N:LENGTH or N:argM")
	}
	o.captures = append(o.captures, c)
	return nil
}

func isLetter(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// maxKnownText is how many bytes of a text are copied that --str does not name.
const maxKnownText = 128

// maxCapture is the limit of a capture in bytes, see [trace.Capture].
const maxCapture = 32 << 10

// maxCaptureByLength is how many bytes are copied at most if an argument is the
// length: each event takes room for that many.
const maxCaptureByLength = 256

// limitOptions has the option of package usdt for each limit of --limits.
var limitOptions = map[string]string{
	"file": "Limits.FileSites", "owner": "Limits.OwnerSites", "all": "Limits.Sites",
	"owner-descriptors": "Limits.OwnerDescriptors", "descriptors": "Limits.Descriptors",
}

func (o *scopeFlags) addLimit(limit string) error {
	name, number, _ := strings.Cut(limit, "=")
	to := map[string]*int{
		"file": &o.limits.FileSites, "owner": &o.limits.OwnerSites, "all": &o.limits.Sites,
		"owner-descriptors": &o.limits.OwnerDescriptors, "descriptors": &o.limits.Descriptors,
	}[name]
	n, err := strconv.Atoi(number)
	switch {
	case to == nil || err != nil || n < 0:
		return errors.New("want LIMIT=N, the LIMIT being file, owner, all, " +
			"owner-descriptors or descriptors")
	case n == 0:
		n = -1 // none
	}
	*to = n
	return nil
}

// setSize returns a function that reads a number of bytes, with k, M or G. most
// is the limit as its error names it.
func setSize(to *int, limit int, most string) func(string) error {
	return func(size string) error {
		units := map[string]int{"k": 1 << 10, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
		unit := 1
		if u := units[size[max(0, len(size)-1):]]; u != 0 {
			unit, size = u, size[:len(size)-1]
		}
		n, err := strconv.Atoi(size)
		if err != nil || n <= 0 || n > limit/unit {
			return errors.New("want bytes up to " + most)
		}
		*to = n * unit
		return nil
	}
}

func (o *tableFlags) setLinear(s string) error {
	parts := append(strings.Split(s, ":"), "", "")
	number := func(s string) (int64, error) {
		n, err := strconv.ParseInt(s, 0, 64)
		if d, e := time.ParseDuration(s); err != nil && e == nil {
			return d.Nanoseconds(), nil
		}
		return n, err
	}
	low, err := number(parts[0])
	high, err2 := number(parts[1])
	width, err3 := number(parts[2])
	step := uint64(width)
	switch {
	case len(parts) != 5 || errors.Join(err, err2, err3) != nil || width <= 0:
		return errors.New("want LOW:HIGH:STEP, as numbers or times such as 0:10ms:1ms")
	case low >= high:
		return errors.New("LOW must be less than HIGH")
	case (uint64(high)-uint64(low))%step != 0:
		return errors.New("STEP must divide the distance from LOW to HIGH")
	}
	o.linear = trace.Linear(low, high, step)
	return nil
}

// parseLatency reads --latency and --match.
func (o *options) parseLatency() error {
	switch {
	case o.pair == "" && o.match != "" && o.slow == nil:
		return errors.New("--match goes with --latency and --slow")
	case strings.Contains(o.match, ","):
		return errors.New("--match names one TERM, or TERM=TERM where the ends have another one: not several")
	case o.pair == "":
		return nil
	}
	pair, err := parsePair(o.pair)
	if err != nil {
		return fmt.Errorf("--latency: %w", err)
	}
	o.patterns = append(o.patterns, pair.Patterns()...) // both are watched, whatever else is
	latency := o.call(pair)
	o.latency = &latency
	return nil
}

// call is a pair whose ends have in common what --match says.
func (o *callFlags) call(pair defs.PairPattern) trace.Latency {
	return trace.Latency{Pair: pair.String(), By: o.match}
}
