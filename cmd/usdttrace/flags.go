// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// options is the command line, understood.
type options struct {
	files    []string
	probes   []elfnote.Pattern // of -e
	patterns []elfnote.Pattern // all
	pid      int
	follow   bool // the descendants of the process, too
	all      bool
	command  []string // nil without --

	limits    usdt.Limits
	where     string
	list      bool
	listPairs bool
	// everyProbe says that -l lists all, for want of a pattern.
	everyProbe bool
	listed     []elfnote.PairPattern // of --pairs and --slow
	slow       *time.Duration        // nil for hits instead of calls
	spans      []trace.Latency       // of --slow
	captures   []capture
	names      []string // files with definitions
	stack      bool
	starts     bool // stacks of the starts of calls
	unwind     int  // bytes of stacks that are copied to be unwound here; 0: the kernel walks them
	maxEvents  int
	every      int // about one in so many hits is taken, 0 for all
	rate       int // at most so many hits a second on each processor, 0 for all
	buffer     int

	count   bool
	sum     string
	hist    string
	linear  *trace.Histogram
	latency *trace.Latency
	// callArguments are those of the call of several probes that latency is.
	callArguments []string
	by            []string
	interval      time.Duration

	sort      string // "" for what a table is about
	top       int    // rows that are printed, 0 for all
	maxKeys   int    // 0 for defaultMaxKeys
	normalize func(text string) string

	pprofFile, foldedFile, flamegraphFile string // of stacks

	chromeTrace string // the file, "" for none

	outputFile string // "" for standard output
	json       bool
	quiet      bool
	stats      bool
	duration   time.Duration
	mode       usdt.Mode

	help, version, cleanup bool
	man                    bool
	completion             string // the shell
}

// followsFamily reports whether descendants are watched, too.
func (o *options) followsFamily() bool { return o.follow || o.command != nil }

// eventStacks reports whether events are printed with stacks.
func (o *options) eventStacks() bool { return o.stack || o.starts }

// byStack reports whether rows are by user stack.
func (o *options) byStack() bool { return slices.Contains(o.by, "stack") }

// capture is what is to be brought from behind an argument.
type capture struct {
	trace.Capture
	number int // of the argument, -1 if it is given by name
}

// flag returns the flag that asks for the capture.
func (c *capture) flag() string {
	if c.Bytes {
		return "bytes"
	}
	return "str"
}

// capture returns what is to be brought from behind an argument of a site, nil
// for nothing.
func (o *options) capture(site *trace.Site, arg int) *capture {
	i := slices.IndexFunc(o.captures,
		func(c capture) bool { return c.number == arg || c.Arg == site.ArgumentName(arg) })
	if i >= 0 {
		return &o.captures[i]
	}
	if probe := site.Definition(); probe != nil && probe.Arguments[arg].IsText {
		return &knownText
	}
	return nil
}

// knownText is what is brought from behind an argument that is a text by its
// definition.
var knownText = capture{trace.Capture{Max: maxKnownText}, -1}

// aggregates reports whether hits are aggregated in the kernel rather than
// printed.
func (o *options) aggregates() bool {
	return o.count || o.sum != "" || o.hist != "" || o.latency != nil && o.chromeTrace == "" ||
		o.profiles()
}

// printsOnStdout reports whether something is printed on standard output.
func (o *options) printsOnStdout() bool {
	return o.outputFile == "" && o.chromeTrace == "" &&
		(o.count || o.sum != "" || o.hist != "" || o.latency != nil || !o.profiles())
}

func parseCommandLine(args []string) (*options, error) {
	o := &options{}
	var latency, match, unwind string
	var flags commandline.Flags
	flags.List(o.addProbe, "e", "probe")
	flags.Func(o.setPID, "p", "pid")
	flags.Switch(&o.follow, "f", "follow")
	flags.Switch(&o.all, "a", "all")
	flags.Func(func(string) error {
		return errors.New("is not known: the command is written at the end, as in usdttrace PATTERN -- COMMAND ARGUMENT")
	}, "c", "command")
	flags.List(o.addLimit, "limits")
	flags.Once(&o.where, "where")
	flags.Switch(&o.list, "l", "list")
	flags.Switch(&o.listPairs, "pairs")

	flags.Func(o.setSlow, "slow")

	flags.List(func(s string) error { return o.addCapture(s, false) }, "str")
	flags.List(func(s string) error { return o.addCapture(s, true) }, "bytes")
	flags.List(o.addNames, "names")
	flags.Switch(&o.stack, "stack")
	flags.Switch(&o.starts, "start-stack")
	flags.Text(&unwind, "unwind")
	flags.Func(setCount(&o.maxEvents), "max-events")
	flags.Func(o.setBuffer, "buffer")
	flags.Func(setCount(&o.every), "every")
	flags.Func(setCount(&o.rate), "rate")

	flags.Switch(&o.count, "count")
	flags.Once(&o.sum, "sum")
	flags.Once(&o.hist, "hist")
	flags.Func(o.setLinear, "linear")
	flags.Once(&latency, "latency")
	flags.Once(&match, "match")
	flags.List(o.addKey, "by")
	flags.Func(setTime(&o.interval), "interval")
	flags.Func(o.setSort, "sort")
	flags.Func(setCount(&o.top), "top")
	flags.Func(setCount(&o.maxKeys), "max-keys")
	flags.Func(o.setNormalize, "normalize")
	flags.Text(&o.pprofFile, "pprof")
	flags.Text(&o.foldedFile, "folded")
	flags.Text(&o.flamegraphFile, "flamegraph")
	flags.Text(&o.chromeTrace, "chrome-trace")

	flags.Text(&o.outputFile, "o", "output")
	flags.Switch(&o.json, "json")
	flags.Switch(&o.quiet, "q", "quiet")
	flags.Switch(&o.stats, "stats")
	flags.Func(setTime(&o.duration), "duration")
	flags.Func(o.setMode, "mode")
	flags.Switch(&o.cleanup, "cleanup")
	flags.Switch(&o.help, "h", "help")
	flags.Switch(&o.version, "version")
	flags.Switch(&o.man, "man")
	flags.Func(o.setCompletion, "completion")
	flags.Rest(o.setCommandWords)
	operands, err := flags.Parse(args)
	if err != nil || o.help || o.version || o.man || o.completion != "" {
		return o, err
	}
	if o.cleanup {
		if len(args) > 1 {
			return nil, errors.New("--cleanup goes with nothing else")
		}
		return o, nil
	}
	for _, parse := range []func() error{
		func() error { return o.parseLatency(latency, match) },
		func() error { return o.parseUnwind(unwind) },
		func() error { return o.parseOperands(operands, match) },
		o.check,
	} {
		if err := parse(); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// parseOperands divides the other words into patterns, and files or libraries.
func (o *options) parseOperands(words []string, match string) error {
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
		return o.parsePairs(patterns, match)
	case others && o.latency != nil && !o.count && o.sum == "" && o.hist == "" &&
		o.chromeTrace == "":
		return errors.New("--latency watches the pair that it names: other patterns are for --count, --sum and --hist beside it")
	}
	o.patterns = append(o.patterns, o.probes...)
	for _, word := range patterns {
		if err := o.addPattern(word); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) check() error {
	targets := 0
	for _, given := range []bool{o.pid != 0, o.all, o.command != nil} {
		if given {
			targets++
		}
	}
	if o.list && len(o.patterns) == 0 && !slices.ContainsFunc(o.files, commandline.IsMistaken) {
		o.patterns, o.everyProbe = []elfnote.Pattern{elfnote.MustParsePattern("*")}, true
	}
	switch {
	case o.follow && o.pid == 0 && o.command == nil:
		return errors.New("-f goes with -p PID: it watches the descendants of the process, too, as -- COMMAND always does")
	case o.limits != usdt.Limits{} &&
		(len(o.files) > 0 || o.command != nil || !o.all && o.pid == 0):
		return errors.New("--limits goes with -a, or with -p and no FILE: what is named is attached whatever its size")
	case targets > 1:
		return errors.New("-p, -a and -- COMMAND exclude each other")
	case targets == 0 && len(o.files) == 0:
		return errors.New("nothing to watch: name a file or library, or use -p PID, -- COMMAND or -a")
	case len(o.patterns) == 0 && slices.ContainsFunc(o.files, commandline.IsMistaken):
		name := o.files[slices.IndexFunc(o.files, commandline.IsMistaken)]
		return fmt.Errorf("no PATTERN of probes given: %s was taken for a file; a probe is written PROVIDER:NAME, as in '*:%s'", name, name)
	case len(o.patterns) == 0:
		return errors.New("no PATTERN of probes given; '*' is all of them")
	case len(o.by) > 0 && !o.aggregates():
		return errors.New("--by goes with --count, --sum, --hist or --latency")
	case o.linear != nil && o.hist == "" && o.latency == nil:
		return errors.New("--linear goes with --hist or --latency")
	case o.interval > 0 && !o.aggregates() && o.slow == nil:
		return errors.New("--interval goes with --count, --sum, --hist, --latency or --slow")
	case o.chromeTrace != "" && (o.aggregates() || o.list || o.listPairs || o.json ||
		o.outputFile != ""):
		return errors.New("--chrome-trace is about events, and takes the place of the output: " +
			"it does not go with --count, --sum, --hist, --pprof, --folded, --flamegraph, -l, --pairs, --json and -o")
	case o.starts && o.slow == nil && (o.chromeTrace == "" || o.latency == nil):
		return errors.New("--start-stack goes with --slow, or with --latency and --chrome-trace: other hits have one stack, see --stack")
	case o.every > 0 && o.rate > 0:
		return errors.New("--every and --rate exclude each other")
	case o.samples() && o.aggregates() && !o.fromEvents():
		if reason := o.needsKernel(); reason != "" && (o.profiles() || o.byStack()) {
			return fmt.Errorf("--every and --rate do not go with %s, which is counted in the kernel, of all hits", reason)
		}
		return errors.New("--every and --rate are about events and stacks; what is counted in the kernel is counted of all hits")
	case o.slow != nil && (o.aggregates() || o.list) ||
		o.listPairs && (o.aggregates() || o.list || o.slow != nil):
		return errors.New("--slow prints calls, and --pairs lists pairs of probes: neither goes with the other, nor with -l, --count, --sum, " +
			"--hist, --latency or profiles")
	case o.listPairs && o.where != "":
		return errors.New("--pairs only lists pairs of probes: it does not go with --where")
	case o.list && (o.aggregates() || o.where != ""):
		return errors.New("-l only lists what the patterns match: it does not go with --where, --count, --sum, --hist, --latency or --pprof")
	case (o.top > 0 || o.sort != "" || o.maxKeys > 0 || o.normalize != nil) && !o.aggregates():
		return errors.New("--top, --sort, --max-keys and --normalize go with --count, --sum, --hist or --latency")
	case o.aggregates() && (o.maxEvents > 0 || o.stack || len(o.captures) > 0):
		return errors.New("--max-events, --stack, --str and --bytes are about events, but the other flags ask for what hits come to " +
			"(as keys: --by stack, --by 'str(arg0)')")
	}
	return nil
}

func (o *options) setPID(s string) (err error) {
	if o.pid != 0 {
		return errors.New("one process can be given (-a watches all)")
	}
	o.pid, err = commandline.ParsePID(s)
	return err
}

func (o *options) setCompletion(shell string) error {
	o.completion = shell
	return commandline.CheckShell(shell)
}

// setCommandWords takes the words behind --.
func (o *options) setCommandWords(words []string) error {
	if len(words) == 0 {
		return errors.New("no COMMAND behind --")
	}
	o.command = words
	return nil
}

// setCount returns a function that reads a number above 0.
func setCount(to *int) func(string) error {
	return func(s string) (err error) {
		if *to, err = strconv.Atoi(s); err != nil || *to <= 0 {
			return errors.New("want a number above 0")
		}
		return nil
	}
}

// setSort reads the name of a column.
func (o *options) setSort(s string) error {
	o.sort = strings.ToLower(s)
	if sortable[o.sort] == nil {
		return fmt.Errorf("want %s", strings.Join(slices.Sorted(maps.Keys(sortable)), ", "))
	}
	return nil
}

func (o *options) addKey(key string) error {
	o.by = append(o.by, key)
	return nil
}

func (o *options) addNames(file string) error {
	o.names = append(o.names, file)
	return nil
}

// addCapture reads N, N:MAX or N:argM; both can be the names of arguments.
func (o *options) addCapture(s string, bytes bool) error {
	number, length, limited := strings.Cut(s, ":")
	c := capture{trace.Capture{Arg: number, Bytes: bytes}, -1}
	arg, err := strconv.Atoi(strings.TrimPrefix(number, "arg"))
	switch {
	case err == nil && arg >= 0:
		c.Arg, c.number = fmt.Sprintf("arg%d", arg), arg
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
			return fmt.Errorf("at most %d bytes can be brought", maxCapture)
		}
	case bytes:
		return errors.New("want N:LENGTH or N:argM")
	}
	o.captures = append(o.captures, c)
	return nil
}

// isLetter reports whether a name can begin with c.
func isLetter(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// maxKnownText is how many bytes are brought at most of texts that nobody asked
// for.
const maxKnownText = 128

// maxCapture is what the kernel is asked for at most, see trace.Capture.
const maxCapture = 32 << 10

// maxCaptureByLength is how many bytes are brought at most where an argument
// says how many there are: each event takes room for that many.
const maxCaptureByLength = 256

// setTime returns a function that reads a time: seconds, or a number with its
// unit.
func setTime(to *time.Duration) func(string) error {
	return func(s string) error {
		if _, err := strconv.ParseFloat(s, 64); err == nil {
			s += "s"
		}
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 {
			return errors.New("want seconds, or a number with its unit, such as 500ms or 2m")
		}
		*to = d
		return nil
	}
}

// setSlow reads the least time of a call. It may be 0.
func (o *options) setSlow(s string) error {
	d := new(time.Duration)
	if s != "0" {
		if err := setTime(d)(s); err != nil {
			return err
		}
	}
	o.slow = d
	return nil
}

func (o *options) setMode(mode string) error {
	switch mode {
	case "multi":
		o.mode = usdt.ModeMulti
	case "single":
		o.mode = usdt.ModeSingle
	case "single-ip":
		o.mode = usdt.ModeSingleIPMap
	default:
		return errors.New("want multi, single or single-ip")
	}
	return nil
}

// limitOptions are the options of what --limits calls its limits.
var limitOptions = map[string]string{
	"file": "Limits.FileSites", "owner": "Limits.OwnerSites", "all": "Limits.Sites",
	"owner-descriptors": "Limits.OwnerDescriptors", "descriptors": "Limits.Descriptors",
}

// addLimit reads LIMIT=N.
func (o *options) addLimit(limit string) error {
	name, number, _ := strings.Cut(limit, "=")
	to := map[string]*int{
		"Limits.FileSites": &o.limits.FileSites, "Limits.OwnerSites": &o.limits.OwnerSites,
		"Limits.Sites":            &o.limits.Sites,
		"Limits.OwnerDescriptors": &o.limits.OwnerDescriptors,
		"Limits.Descriptors":      &o.limits.Descriptors,
	}[limitOptions[name]]
	n, err := strconv.Atoi(number)
	switch {
	case to == nil || err != nil || n < 0:
		return errors.New("want LIMIT=N, the LIMIT being file, owner, all, owner-descriptors or descriptors")
	case n == 0:
		n = -1 // none
	}
	*to = n
	return nil
}

func (o *options) setBuffer(size string) (err error) {
	if o.buffer, err = parseSize(size, 1<<30); err != nil {
		return errors.New("want bytes up to 1G, with k, M or G")
	}
	return nil
}

// parseSize reads bytes, with k, M or G.
func parseSize(size string, limit int) (int, error) {
	if size == "" {
		return 0, strconv.ErrSyntax
	}
	units := map[byte]int{'k': 1 << 10, 'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}
	unit, number := units[size[len(size)-1]], size[:len(size)-1]
	if unit == 0 {
		unit, number = 1, size
	}
	n, err := strconv.Atoi(number)
	if err != nil || n <= 0 || n > limit/unit {
		return 0, strconv.ErrRange
	}
	return n * unit, nil
}

// setLinear reads LOW:HIGH:STEP.
func (o *options) setLinear(s string) error {
	var h trace.Histogram
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return errors.New("want LOW:HIGH:STEP")
	}
	var errs [3]error
	h.Low, errs[0] = strconv.ParseInt(parts[0], 0, 64)
	h.High, errs[1] = strconv.ParseInt(parts[1], 0, 64)
	h.Step, errs[2] = strconv.ParseUint(parts[2], 0, 64)
	switch {
	case errors.Join(errs[:]...) != nil || h.Step == 0:
		return errors.New("want LOW:HIGH:STEP")
	case h.Low >= h.High:
		return errors.New("LOW must be less than HIGH")
	case (uint64(h.High)-uint64(h.Low))%h.Step != 0:
		return errors.New("STEP must divide the distance from LOW to HIGH")
	}
	o.linear = &h
	return nil
}

// parseLatency reads a pair of probes and what is the same at both.
func (o *options) parseLatency(s, match string) error {
	if s == "" {
		if match != "" && o.slow == nil {
			return errors.New("--match goes with --latency and --slow")
		}
		return nil
	}
	pair, err := parsePair(s)
	if err != nil {
		return fmt.Errorf("--latency: %w", err)
	}
	o.patterns = append(o.patterns, pair.Patterns()...) // both are watched, whatever else is
	o.latency = &trace.Latency{Pair: pair}
	o.latency.By, o.latency.DoneBy, _ = strings.Cut(match, "=")
	return nil
}

func (o *options) addProbe(s string) error {
	p, err := elfnote.ParsePattern(s)
	if err == nil {
		o.probes = append(o.probes, p)
	}
	return err
}

func (o *options) addPattern(s string) error {
	p, err := elfnote.ParsePattern(s)
	if err == nil {
		o.patterns = append(o.patterns, p)
	}
	return err
}
