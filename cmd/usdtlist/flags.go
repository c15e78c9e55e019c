// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/ldso"
)

// options is the command line, understood.
type options struct {
	files    []string // paths and bare names, in order; in the eyes of processes if some are asked for
	patterns []elfnote.Pattern

	pids         []int // the processes of which the files are listed
	allProcesses bool

	format    string // one of the formats
	verbose   bool
	debugFile string
	help      bool
	version   bool
}

// The values of --format.
const (
	formatTable    = "table"
	formatJSON     = "json"
	formatBpftrace = "bpftrace"
	formatBCC      = "bcc"
	formatPerf     = "perf"
	formatLibbpf   = "libbpf"
)

var formats = [...]string{formatTable, formatJSON, formatBpftrace, formatBCC, formatPerf, formatLibbpf}

// ofProcesses tells whether files that processes map are asked for.
func (o *options) ofProcesses() bool { return len(o.pids) > 0 || o.allProcesses }

func parseArguments(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("usdtlist", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}

	var asJSON bool
	match := func(s string) error {
		p, err := elfnote.ParsePattern(s)
		if err == nil {
			o.patterns = append(o.patterns, p)
		}
		return err
	}
	for _, name := range []string{"m", "match"} {
		flags.Func(name, "", match)
	}
	for _, name := range []string{"p", "pid"} {
		flags.Func(name, "", o.addPID)
	}
	for _, name := range []string{"a", "all"} {
		flags.BoolVar(&o.allProcesses, name, false, "")
	}
	for _, name := range []string{"v", "verbose"} {
		flags.BoolVar(&o.verbose, name, false, "")
	}
	for _, name := range []string{"h", "help"} {
		flags.BoolVar(&o.help, name, false, "")
	}
	flags.BoolVar(&o.version, "version", false, "")
	flags.BoolVar(&asJSON, "json", false, "")
	flags.StringVar(&o.format, "format", "", "")
	flags.StringVar(&o.debugFile, "debug-file", "", "")

	operands, err := commandline.ParseInterspersed(flags, args)
	if err != nil {
		return nil, err
	}
	if o.help || o.version {
		return o, nil
	}

	if asJSON {
		if o.format != "" && o.format != formatJSON {
			return nil, fmt.Errorf("--json and --format %s exclude each other", o.format)
		}
		o.format = formatJSON
	}
	switch o.format {
	case "":
		o.format = formatTable
	case formatTable, formatJSON, formatBpftrace, formatBCC, formatPerf, formatLibbpf:
	default:
		return nil, fmt.Errorf("--format %q: want one of %s", o.format, strings.Join(formats[:], ", "))
	}

	if len(o.pids) > 0 && o.allProcesses {
		return nil, errors.New("-p and -a exclude each other: -a means every process")
	}
	for _, operand := range operands {
		switch {
		case o.isPattern(operand):
			if err := match(operand); err != nil {
				return nil, err
			}
		case o.ofProcesses() && strings.Contains(operand, "/") && !strings.HasPrefix(operand, "/"):
			return nil, fmt.Errorf("%s: with -p and -a, a path is one in the eyes of the process and starts with /", operand)
		default:
			o.files = append(o.files, operand)
		}
	}
	if len(o.files) == 0 && !o.ofProcesses() {
		if len(operands) > 0 {
			return nil, fmt.Errorf("no file or library given, only patterns (%s); -a lists the files of all processes",
				strings.Join(operands, " "))
		}
		return nil, errors.New("no file or library given; -p PID lists those of a process, -a those of all")
	}
	return o, nil
}

// addPID adds a process to those whose files are listed.
func (o *options) addPID(s string) error {
	pid, err := strconv.Atoi(s)
	if err != nil || pid <= 0 {
		return errors.New("want the number of a process")
	}
	if !slices.Contains(o.pids, pid) {
		o.pids = append(o.pids, pid)
	}
	return nil
}

// isPattern tells the words that pick probes from those that name files. A
// word that is a file is one, whatever it looks like; but not to a process, of
// which the current directory is another.
func (o *options) isPattern(word string) bool {
	if !strings.ContainsAny(word, ":*?[") {
		return false
	}
	for _, prefix := range []string{"/", "./", "../"} {
		if strings.HasPrefix(word, prefix) {
			return false
		}
	}
	if o.ofProcesses() {
		return true
	}
	_, err := os.Stat(word)
	return err != nil
}

// findFile returns the path of a file or library named on the command line, and
// whether it was searched for.
func findFile(name string) (path string, searched bool, err error) {
	if strings.Contains(name, "/") {
		return name, false, nil
	}
	if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
		return name, false, nil
	}
	path, err = ldso.Find(name, nil)
	if errors.Is(err, fs.ErrNotExist) && !strings.Contains(name, ".so") {
		// Perhaps it was meant to pick probes.
		err = fmt.Errorf("%w; for the probes of that name, write -m %s", err, name)
	}
	return path, true, err
}
