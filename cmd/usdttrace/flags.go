// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
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
	patterns []elfnote.Pattern
	pid      int
	all      bool
	command  []string // nil without -c

	where     string
	captures  []trace.Capture
	stack     bool
	unwind    int // bytes of stacks that are copied to be unwound here; 0: the kernel walks them
	maxEvents int
	buffer    int

	count     bool
	sum       string
	hist      string
	linear    *trace.Histogram
	latency   *trace.Latency
	by        []string
	interval  time.Duration
	pprofFile string

	json     bool
	stats    bool
	duration time.Duration
	mode     usdt.Mode

	help, version bool
}

// byStack tells whether rows are by user stack.
func (o *options) byStack() bool { return slices.Contains(o.by, "stack") }

// isBytes tells whether bytes, not a text, are brought from behind an argument.
func (o *options) isBytes(arg int) bool {
	return slices.ContainsFunc(o.captures, func(c trace.Capture) bool { return c.Arg == arg && c.Bytes })
}

// ends returns the patterns of both ends of a latency, none without --latency.
func (o *options) ends() []elfnote.Pattern {
	if o.latency == nil {
		return nil
	}
	return o.patterns[:2] // see parseLatency
}

// aggregates tells whether hits are counted in the kernel rather than shown.
func (o *options) aggregates() bool {
	return o.count || o.sum != "" || o.hist != "" || o.latency != nil || o.pprofFile != ""
}

func parseArguments(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("usdttrace", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}

	var by, latency, match, linear, mode, buffer, unwind string
	for _, name := range []string{"p", "pid"} {
		flags.IntVar(&o.pid, name, 0, "")
	}
	for _, name := range []string{"a", "all"} {
		flags.BoolVar(&o.all, name, false, "")
	}
	for _, name := range []string{"c", "command"} {
		flags.Func(name, "", func(s string) (err error) {
			o.command, err = splitCommand(s)
			return err
		})
	}
	for _, name := range []string{"h", "help"} {
		flags.BoolVar(&o.help, name, false, "")
	}
	flags.BoolVar(&o.version, "version", false, "")
	flags.StringVar(&o.where, "where", "", "")
	flags.Func("str", "", func(s string) error { return o.addCapture(s, false) })
	flags.Func("bytes", "", func(s string) error { return o.addCapture(s, true) })
	flags.BoolVar(&o.stack, "stack", false, "")
	flags.StringVar(&unwind, "unwind", "", "")
	flags.IntVar(&o.maxEvents, "max-events", 0, "")
	flags.StringVar(&buffer, "buffer", "", "")
	flags.BoolVar(&o.count, "count", false, "")
	flags.StringVar(&o.sum, "sum", "", "")
	flags.StringVar(&o.hist, "hist", "", "")
	flags.StringVar(&linear, "linear", "", "")
	flags.StringVar(&latency, "latency", "", "")
	flags.StringVar(&match, "match", "", "")
	flags.StringVar(&by, "by", "", "")
	flags.Func("interval", "", func(s string) error { return parseTime(s, &o.interval) })
	flags.StringVar(&o.pprofFile, "pprof", "", "")
	flags.BoolVar(&o.json, "json", false, "")
	flags.BoolVar(&o.stats, "stats", false, "")
	flags.Func("duration", "", func(s string) error { return parseTime(s, &o.duration) })
	flags.StringVar(&mode, "mode", "", "")

	operands, err := commandline.ParseInterspersed(flags, args)
	if err != nil || o.help || o.version {
		return o, err
	}
	if by != "" {
		o.by = splitKeys(by)
	}
	for _, parse := range []func() error{
		func() error { return o.parseMode(mode) },
		func() error { return o.parseBuffer(buffer) },
		func() error { return o.parseLinear(linear) },
		func() error { return o.parseLatency(latency, match) },
		func() error { return o.parseUnwind(unwind) },
		func() error { return o.parseOperands(operands) },
		o.check,
	} {
		if err := parse(); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// parseOperands tells patterns from files: a word with a colon or a glob is a
// pattern, unless it is a path or a file.
func (o *options) parseOperands(words []string) error {
	for _, word := range words {
		if !isPattern(word) {
			o.files = append(o.files, word)
			continue
		}
		p, err := elfnote.ParsePattern(word)
		if err != nil {
			return err
		}
		o.patterns = append(o.patterns, p)
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
	switch {
	case targets > 1:
		return errors.New("-p, -a and -c exclude each other")
	case targets == 0 && len(o.files) == 0:
		return errors.New("nothing to watch: name a file or library, or use -p PID, -c COMMAND or -a")
	case o.pid < 0:
		return fmt.Errorf("-p %d: want the number of a process", o.pid)
	case len(o.patterns) == 0 && slices.ContainsFunc(o.files, isMistaken):
		name := o.files[slices.IndexFunc(o.files, isMistaken)]
		return fmt.Errorf("no PATTERN of probes given: %s was taken for a file, a probe is written PROVIDER:NAME, as '*:%s'", name, name)
	case len(o.patterns) == 0:
		return errors.New("no PATTERN of probes given; '*' is all of them")
	case o.maxEvents < 0:
		return fmt.Errorf("--max-events %d: want a number above 0", o.maxEvents)
	case len(o.by) > 0 && !o.aggregates():
		return errors.New("--by goes with --count, --sum, --hist or --latency")
	case o.linear != nil && o.hist == "" && o.latency == nil:
		return errors.New("--linear goes with --hist or --latency")
	case o.interval > 0 && !o.aggregates():
		return errors.New("--interval goes with --count, --sum, --hist or --latency")
	case o.aggregates() && (o.maxEvents > 0 || o.stack || len(o.captures) > 0):
		return errors.New("--max-events, --stack, --str and --bytes are about events, but the other flags ask for what hits come to " +
			"(as keys: --by stack, --by 'str(arg0)')")
	}
	return nil
}

// addCapture reads N or N:MAX.
func (o *options) addCapture(s string, bytes bool) error {
	number, length, limited := strings.Cut(s, ":")
	arg, err := strconv.Atoi(strings.TrimPrefix(number, "arg"))
	if err != nil || arg < 0 {
		return errors.New("want the number of an argument, from 0")
	}
	c := trace.Capture{Arg: arg, Bytes: bytes}
	if limited {
		if c.Max, err = strconv.Atoi(length); err != nil || c.Max <= 0 {
			return errors.New("want a number of bytes after the colon")
		}
		if c.Max > maxCapture {
			return fmt.Errorf("at most %d bytes can be brought", maxCapture)
		}
	} else if bytes {
		return errors.New("want N:LENGTH")
	}
	o.captures = append(o.captures, c)
	return nil
}

// maxCapture is what the kernel is asked for at most, see trace.Capture.
const maxCapture = 32 << 10

func parseTime(s string, to *time.Duration) error {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return errors.New("want a time above 0 with its unit, such as 5s, 500ms or 2m")
	}
	*to = d
	return nil
}

func (o *options) parseMode(mode string) error {
	modes := map[string]usdt.Mode{
		"": usdt.ModeAuto, "multi": usdt.ModeMulti, "single": usdt.ModeSingle, "single-ip": usdt.ModeSingleIPMap,
	}
	m, ok := modes[mode]
	if !ok {
		return fmt.Errorf("--mode %q: want multi, single or single-ip", mode)
	}
	o.mode = m
	return nil
}

func (o *options) parseBuffer(size string) error {
	if size == "" {
		return nil
	}
	n, err := parseSize(size, 1<<30)
	if err != nil {
		return fmt.Errorf("--buffer %q: want bytes up to 1G, with k, M or G", size)
	}
	o.buffer = n
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

func (o *options) parseLinear(s string) error {
	if s == "" {
		return nil
	}
	var h trace.Histogram
	parts := strings.Split(s, ":")
	var err error
	if len(parts) == 3 {
		var errs [3]error
		h.Low, errs[0] = strconv.ParseInt(parts[0], 0, 64)
		h.High, errs[1] = strconv.ParseInt(parts[1], 0, 64)
		h.Step, errs[2] = strconv.ParseUint(parts[2], 0, 64)
		err = errors.Join(errs[:]...)
	}
	if len(parts) != 3 || err != nil || h.Step == 0 {
		return fmt.Errorf("--linear %q: want LOW:HIGH:STEP", s)
	}
	switch {
	case h.Low >= h.High:
		return fmt.Errorf("--linear %q: LOW must be less than HIGH", s)
	case (uint64(h.High)-uint64(h.Low))%h.Step != 0:
		return fmt.Errorf("--linear %q: STEP must divide the distance from LOW to HIGH", s)
	}
	o.linear = &h
	return nil
}

// parseLatency reads START..DONE and what is the same at both.
func (o *options) parseLatency(s, match string) error {
	if s == "" {
		if match != "" {
			return errors.New("--match goes with --latency")
		}
		return nil
	}
	start, done, ok := strings.Cut(s, "..")
	if !ok {
		return fmt.Errorf("--latency %q: want START..DONE", s)
	}
	o.latency = &trace.Latency{Start: start, Done: done}
	o.latency.By, o.latency.DoneBy, _ = strings.Cut(match, "=")
	// Both are watched, whatever else is. They are the first patterns.
	return o.parseOperands([]string{patternWord(start), patternWord(done)})
}

// patternWord makes a word that is a pattern beyond doubt.
func patternWord(s string) string {
	if strings.Contains(s, ":") {
		return s
	}
	return "*:" + s
}
