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
			case "FORMAT":
				return helptext.Words(formats[:]...), false
			case "SHELL":
				return helptext.Words(helptext.Shells...), false
			}
			return nil, false
		},
		Operands: func(words []string, current string) []helptext.Word { return probenames.SourceOf(words).Probes() },
	}
}
