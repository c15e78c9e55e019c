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
	"github.com/gousdt/gousdt/internal/helptext"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

func (o *options) setPID(s string) (err error) {
	if o.pid != 0 {
		return errors.New("one process can be given (-a watches all)")
	}
	o.pid, err = commandline.ParsePID(s)
	return err
}

func (o *options) setCompletion(shell string) error {
	o.completion = shell
	return helptext.CheckShell(shell)
}

// setCommandWords takes the words behind --.
func (o *options) setCommandWords(words []string) error {
	switch {
	case o.command != nil:
		return errors.New("-c and -- exclude each other")
	case len(words) == 0:
		return errors.New("no COMMAND behind --")
	}
	o.command = words
	return nil
}

func (o *options) setCommand(s string) (err error) {
	if o.command != nil {
		return errors.New("one command can be given")
	}
	o.command, err = splitCommand(s)
	return err
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

// splitCommand splits at blanks; ' and " quote, \ quotes the next character
// outside of '.
func splitCommand(s string) ([]string, error) {
	var words []string
	var word []byte
	inWord, quote := false, byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(s):
			i++
			word, inWord = append(word, s[i]), true
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				word = append(word, c)
			}
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if inWord {
				words, word, inWord = append(words, string(word)), nil, false
			}
		default:
			word, inWord = append(word, c), true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a %c is not closed", quote)
	}
	if inWord {
		words = append(words, string(word))
	}
	if len(words) == 0 {
		return nil, errors.New("the command is empty")
	}
	return words, nil
}
