// SPDX-License-Identifier: BSD-2-Clause

package providers

import (
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// isTraceEvents reports whether a file is one of QEMU's: trace-events in the
// directories of its sources, trace-events-all where it is installed.
func isTraceEvents(name string) bool {
	return strings.HasPrefix(path.Base(filepath.ToSlash(name)), "trace-events")
}

// traceEvent is a line of such a file: properties, the event's name, its
// arguments in parentheses, and a format for log files.
type traceEvent struct{ properties, name, arguments string }

// parseTraceEvent divides a line and reports whether it is an event.
func parseTraceEvent(line string) (traceEvent, bool) {
	before, rest, _ := strings.Cut(line, "(")
	arguments, _, ok := strings.Cut(rest, ")")
	words := strings.Fields(before)
	if !ok || strings.Contains(arguments, "(") || len(words) == 0 || !isWordByte(line[0]) {
		return traceEvent{}, false
	}
	for _, word := range words {
		if strings.ContainsFunc(word,
			func(r rune) bool { return r >= utf8.RuneSelf || !isWordByte(byte(r)) }) {
			return traceEvent{}, false
		}
	}
	last := len(words) - 1
	return traceEvent{strings.Join(words[:last], " "), words[last], arguments}, true
}

// fromTraceEvents writes QEMU's events as the provider definition that its
// build makes of them. Lines stay where they are, for the errors.
func fromTraceEvents(source string) string {
	var b strings.Builder
	b.WriteString("provider qemu {")
	for line := range strings.Lines(source) {
		event, ok := parseTraceEvent(line)
		switch {
		case !ok && strings.TrimSpace(line) != "" && line[0] != '#':
			b.WriteString(line) // is refused
		case !ok || strings.Contains(event.properties, "disable"),
			strings.Contains(event.properties, "tcg"):
			b.WriteByte('\n') // has no probe, or two of other names
		case strings.Contains(event.properties, "vcpu"): // passes the processor first
			arguments := "void *cpu, " + event.arguments
			if strings.TrimSpace(event.arguments) == "void" {
				arguments = "void *cpu"
			}
			b.WriteString("probe " + event.name + "(" + arguments + ");\n")
		default:
			b.WriteString("probe " + event.name + "(" + event.arguments + ");\n")
		}
	}
	b.WriteString("};")
	return b.String()
}
