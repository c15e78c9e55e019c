// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"errors"
	"io"
	"os"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/helptext"
	"github.com/gousdt/gousdt/internal/messages"
	"github.com/gousdt/gousdt/proc"
)

// The exit status.
const (
	exitFound   = 0 // at least one probe was listed
	exitNothing = 1 // every file was read, and there was nothing to list
	exitError   = 2 // a file or process could not be read, or the command line was wrong
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the command: it lists on stdout, warns on stderr and returns the exit
// status.
func run(args []string, stdout, stderr io.Writer) int {
	m := messages.New("usdtlist", stderr)
	if len(args) > 0 && args[0] == helptext.Request {
		io.WriteString(stdout, completer().Complete(args[1:]).String())
		return exitFound
	}
	o, err := parseCommandLine(args)
	if err != nil {
		m.Warn("%v (usdtlist -h shows how to use it)", err)
		return exitError
	}
	switch {
	case o.help:
		io.WriteString(stdout, usage)
		return exitFound
	case o.version:
		io.WriteString(stdout, commandline.Version("usdtlist"))
		return exitFound
	case o.man:
		io.WriteString(stdout,
			helptext.Parse(usage).Man("usdtlist", commandline.Version("usdtlist")))
		return exitFound
	case o.completion != "":
		io.WriteString(stdout, helptext.Script(o.completion, "usdtlist"))
		return exitFound
	}

	out := bufio.NewWriterSize(stdout, 32<<10)
	l := lister{options: o, proc: proc.NewFS(""), printer: newPrinter(o, out, m), out: out,
		Messages: m}
	if o.verbose || o.format == formatJSON { // what shows names
		if l.definitions, err = commandline.Definitions(o.names, m.Warn); err != nil {
			m.Warn("%v", err)
			return exitError
		}
	}
	status := l.list()
	if err := out.Flush(); err != nil {
		var pathErr *os.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		m.Warn("writing the list: %v", err)
		return exitError
	}
	return status
}
