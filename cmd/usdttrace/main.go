// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/helptext"
	"github.com/gousdt/gousdt/internal/messages"
)

// Exit statuses.
const (
	exitWatched = 0 // or what the command ended with
	exitNothing = 1 // no probe matched
	exitError   = 2 // something could not be watched or written, or the command line was wrong

	// exitPipe is what a shell says of a program that SIGPIPE has ended: who
	// reads the output has seen enough.
	exitPipe = 128 + int(syscall.SIGPIPE)
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the command: events and what they come to go to stdout, all else to
// stderr. It returns the exit status.
func run(args []string, stdout, stderr *os.File) int {
	m := messages.New("usdttrace", stderr)
	if len(args) > 0 && args[0] == helptext.Request {
		io.WriteString(stdout, completer().Complete(args[1:]).String())
		return exitWatched
	}
	if len(args) == 1 && args[0] == holdLinks {
		holdUntilAlone()
		return exitWatched
	}
	o, err := parseCommandLine(args)
	if err != nil {
		m.Warn("%v (usdttrace -h shows how to use it)", err)
		return exitError
	}
	switch {
	case o.help:
		io.WriteString(stdout, usage)
		return exitWatched
	case o.version:
		io.WriteString(stdout, commandline.Version("usdttrace"))
		return exitWatched
	case o.man:
		io.WriteString(stdout, helptext.Parse(usage).Man("usdttrace",
			commandline.Version("usdttrace")))
		return exitWatched
	case o.completion != "":
		io.WriteString(stdout, helptext.Script(o.completion, "usdttrace"))
		return exitWatched
	}
	if o.cleanup {
		return cleanUp(m, stdout)
	}
	t := &tracer{options: o, messages: m, stdout: stdout}
	if o.quiet {
		m.SetQuiet()
	}
	err = t.trace()
	m.Rest("")
	var nothing *nothingError
	switch {
	case errors.As(err, &nothing):
		m.Warn("%v", err)
		return exitNothing
	case errors.Is(err, syscall.EPIPE):
		return exitPipe
	case errors.Is(err, errReported):
		return exitError
	case err != nil:
		m.Warn("%s", explain(err))
		return exitError
	case t.failed.Load():
		return exitError
	}
	return t.status
}
