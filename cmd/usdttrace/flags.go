// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"slices"
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
	command  []string // nil without -c and --

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

	count    bool
	sum      string
	hist     string
	linear   *trace.Histogram
	latency  *trace.Latency
	by       []string
	interval time.Duration

	sort      string // "" for what a table is about
	top       int    // rows that are printed, 0 for all
	maxKeys   int    // 0 for defaultMaxKeys
	normalize func(text string) string

	pprofFile, foldedFile, flamegraphFile string // of stacks

	chromeTrace string // the file, "" for none

	outputFile string // "" for standard output
	json, csv  bool
	quiet      bool
	stats      bool
	duration   time.Duration
	mode       usdt.Mode

	help, version, cleanup bool
	man                    bool
	completion             string // the shell
}

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
	flags.Func(o.setCommand, "c", "command")
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
	flags.Switch(&o.csv, "csv")
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
	case o.follow && o.pid == 0:
		return errors.New("-f goes with -p PID: it watches the descendants of the process, too")
	case o.limits != usdt.Limits{} &&
		(len(o.files) > 0 || o.command != nil || !o.all && o.pid == 0):
		return errors.New("--limits goes with -a, or with -p and no FILE: what is named is attached whatever its size")
	case targets > 1:
		return errors.New("-p, -a and -c exclude each other")
	case targets == 0 && len(o.files) == 0:
		return errors.New("nothing to watch: name a file or library, or use -p PID, -c COMMAND or -a")
	case len(o.patterns) == 0 && slices.ContainsFunc(o.files, commandline.IsMistaken):
		name := o.files[slices.IndexFunc(o.files, commandline.IsMistaken)]
		return fmt.Errorf("no PATTERN of probes given: %s was taken for a file; a probe is written PROVIDER:NAME, as in '*:%s'", name, name)
	case len(o.patterns) == 0:
		return errors.New("no PATTERN of probes given; '*' is all of them")
	case len(o.by) > 0 && !o.aggregates():
		return errors.New("--by goes with --count, --sum, --hist or --latency")
	case o.linear != nil && o.hist == "" && o.latency == nil:
		return errors.New("--linear goes with --hist or --latency")
	case o.interval > 0 && !o.aggregates():
		return errors.New("--interval goes with --count, --sum, --hist or --latency")
	case o.chromeTrace != "" && (o.aggregates() || o.list || o.listPairs || o.json || o.csv ||
		o.outputFile != ""):
		return errors.New("--chrome-trace is about events, and takes the place of the output: " +
			"it does not go with --count, --sum, --hist, --pprof, --folded, --flamegraph, -l, --pairs, --json, --csv and -o")
	case o.starts && o.slow == nil && (o.chromeTrace == "" || o.latency == nil):
		return errors.New("--start-stack goes with --slow, or with --latency and --chrome-trace: other hits have one stack, see --stack")
	case o.json && o.csv:
		return errors.New("--json and --csv exclude each other")
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
