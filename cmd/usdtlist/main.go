// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
)

// The exit status.
const (
	exitFound   = 0 // at least one probe was listed
	exitNothing = 1 // every file was read, and there was nothing to list
	exitError   = 2 // a file or process could not be read, or the command line was wrong
)

// short is the text of -h: one screen with the most important.
//
//go:embed short.txt
var short string

// usage is the text of --help. The man page, the completion in shells and
// docs/usdtlist.md are made of it.
//
//go:embed help.txt
var usage string

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the command: it lists on stdout, warns on stderr and returns the exit
// status.
func run(args []string, stdout, stderr io.Writer) int {
	m := commandline.NewMessages("usdtlist", stderr)
	o, err := parseCommandLine(args)
	if err != nil {
		return m.Answer(err, stdout)
	}
	out := bufio.NewWriterSize(stdout, 16<<10)
	l := lister{options: o, args: args, out: out, Messages: m}
	if o.format == formatJSON {
		l.json = newJSONPrinter(out)
	}
	if o.verbose || o.format == formatJSON { // what shows names
		if l.definitions, err = commandline.Definitions(o.names, m.Warn); err != nil {
			m.Warn("%v", err)
			return exitError
		}
	}
	if len(o.patterns) > 0 { // a call has the probes that it stands for
		known := l.calls()
		patterns, calls := commandline.Calls(o.patterns, known, func(text string) {
			m.Note("%s: usdttrace shows calls", text)
		})
		for o.patterns = patterns; len(calls) > 0; calls = calls[1:] {
			o.patterns = append(o.patterns, known.Patterns(calls[0])...)
		}
	}
	status := l.list()
	if err := out.Flush(); err != nil {
		m.Warn("writing the list: %v", commandline.WithoutPath(err))
		return exitError
	}
	return status
}

type options struct {
	files    []string // paths and bare names, in order; of processes as these see them
	patterns []elfnote.Pattern

	recursive bool     // directories are listed, with all that is in them
	filesFrom []string // files that name files; "-" is standard input

	pids         []int // the processes whose files are listed
	allProcesses bool

	format     string // one of the formats
	json       bool   // of --json, which format then says
	verbose    bool
	debugFile  string
	debuginfod bool     // fetch debug files that are not here
	names      []string // files with definitions
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

var formats = [...]string{formatTable, formatJSON, formatBpftrace, formatBCC, formatPerf,
	formatLibbpf}

func (o *options) ofProcesses() bool { return len(o.pids) > 0 || o.allProcesses }

// many reports whether directories or lists are asked for: most of their files
// may have nothing to list.
func (o *options) many() bool { return o.recursive || len(o.filesFrom) > 0 }

func (o *options) flags() *commandline.Flags {
	flags := new(commandline.Flags)
	flags.Patterns(&o.patterns, "e", "probe")
	flags.List(o.addPID, "p", "pid")
	flags.Switch(&o.allProcesses, "a", "all")
	flags.Switch(&o.recursive, "r", "recursive")
	flags.Func(func(s string) error { o.filesFrom = append(o.filesFrom, s); return nil }, "files-from")
	flags.Switch(&o.verbose, "v", "verbose")
	flags.Switch(&o.json, "json")
	flags.Text(&o.format, "format")
	flags.Text(&o.debugFile, "debug-file")
	flags.Switch(&o.debuginfod, "debuginfod")
	flags.Texts(&o.names, "names")
	flags.Standard("usdtlist", short, usage, map[string][]string{"FORMAT": formats[:]})
	return flags
}

func parseCommandLine(args []string) (*options, error) {
	o := &options{}
	operands, err := o.flags().Parse(args)
	switch {
	case err != nil:
		return nil, err
	case o.json && o.format != "" && o.format != formatJSON:
		return nil, fmt.Errorf("--json and --format %s exclude each other", o.format)
	case o.json:
		o.format = formatJSON
	case o.format == "":
		o.format = formatTable
	case !slices.Contains(formats[:], o.format):
		return nil, fmt.Errorf("--format %q: want one of %s", o.format,
			strings.Join(formats[:], ", "))
	}
	switch {
	case len(o.pids) > 0 && o.allProcesses:
		return nil, errors.New("-p and -a exclude each other: -a means every process")
	case o.ofProcesses() && o.many():
		return nil, errors.New("-p and -a list files of processes: " +
			"-r and --files-from do not go with them")
	}
	return o, o.parseOperands(operands)
}

// parseOperands divides the other words into patterns, and files or libraries.
func (o *options) parseOperands(words []string) error {
	for _, word := range words {
		switch {
		case commandline.IsPattern(word, o.ofProcesses()):
			err := commandline.AddPatterns(&o.patterns, commandline.Split(word)...)
			if err != nil {
				return err
			}
		case o.ofProcesses() && strings.Contains(word, "/") && !strings.HasPrefix(word, "/"):
			return fmt.Errorf("%s: with -p and -a, a path is one as the process sees it, "+
				"and starts with /", word)
		default:
			o.files = append(o.files, word)
		}
	}
	switch {
	case len(o.files) > 0 || len(o.filesFrom) > 0 || o.ofProcesses():
		return nil
	case len(words) > 0:
		return fmt.Errorf("no file or library given, only patterns (%s); "+
			"-a lists the files of all processes", strings.Join(words, " "))
	}
	return errors.New("no file or library given; -p PID lists those of a process, -a those of all")
}

func (o *options) addPID(s string) error {
	pids, err := commandline.ParsePIDs(s)
	for _, pid := range pids {
		if !slices.Contains(o.pids, pid) {
			o.pids = append(o.pids, pid)
		}
	}
	return err
}
