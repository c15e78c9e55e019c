// SPDX-License-Identifier: BSD-2-Clause

package probenames

import "github.com/gousdt/gousdt/internal/helptext"

// Completer returns what completes the words of a command with this help: its
// flags, processes, and the probes of the files and the process on the line.
// values are what can stand for other placeholders of the help.
func Completer(usage string, values map[string][]string) *helptext.Completer {
	return &helptext.Completer{
		Help: helptext.Parse(usage),
		Values: func(placeholder string, words []string) ([]helptext.Word, bool) {
			switch placeholder {
			case "PID":
				return Processes(), false
			case "PATTERN", "PAIR":
				return SourceOf(words).Probes(), false
			case "SHELL":
				return helptext.Words(helptext.Shells...), false
			}
			return helptext.Words(values[placeholder]...), false
		},
		Operands: func(words []string, _ string) []helptext.Word {
			return SourceOf(words).Probes()
		},
	}
}
