// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"github.com/gousdt/gousdt/internal/helptext"
	"github.com/gousdt/gousdt/internal/probenames"
)

// completer completes the command's words.
func completer() *helptext.Completer {
	return &helptext.Completer{
		Help: helptext.Parse(usage),
		Values: func(placeholder string, words []string) ([]helptext.Word, bool) {
			switch placeholder {
			case "PID":
				return probenames.Processes(), false
			case "PATTERN":
				return probenames.SourceOf(words).Probes(), false
			case "START..DONE":
				return probenames.SourceOf(words).Probes(), false
			case "KEY", "TERM", "TERM[=TERM]":
				return helptext.Words("comm", "pid", "tid", "uid", "gid", "cpu", "probe", "provider", "site", "cookie", "stack",
					"arg0", "arg1", "arg2", "arg3", "str(arg0)", "str(arg1)"), false
			case "HOW":
				return helptext.Words(unwindDWARF, unwindFP), false
			case "MODE":
				return helptext.Words("multi", "single", "single-ip"), false
			case "SHELL":
				return helptext.Words(helptext.Shells...), false
			}
			return nil, false
		},
		Operands: func(words []string, current string) []helptext.Word { return probenames.SourceOf(words).Probes() },
	}
}
