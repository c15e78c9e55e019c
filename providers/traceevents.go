// SPDX-License-Identifier: BSD-2-Clause

package providers

import (
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// isTraceEvents reports whether a file is one of QEMU's: trace-events in the
// directories of its sources, trace-events-all where it is installed.
func isTraceEvents(name string) bool {
	return strings.HasPrefix(path.Base(filepath.ToSlash(name)), "trace-events")
}

// traceEvent is a line of such a file: properties, the event's name, its
// arguments, and a format for log files.
var traceEvent = regexp.MustCompile(`^((?:\w+\s+)*)(\w+)\s*(\([^()]*\))`)

// fromTraceEvents writes QEMU's events as the provider definition that its
// build makes of them. Lines stay where they are, for the errors.
func fromTraceEvents(source string) string {
	var b strings.Builder
	b.WriteString("provider qemu {")
	for line := range strings.Lines(source) {
		event := traceEvent.FindStringSubmatch(line)
		properties := ""
		if event != nil {
			properties = event[1]
		}
		switch {
		case event == nil && strings.TrimSpace(line) != "" && line[0] != '#':
			b.WriteString(line) // is refused
		case event == nil || strings.Contains(properties, "disable"), strings.Contains(properties, "tcg"):
			b.WriteByte('\n') // has no probe, or two of other names
		case strings.Contains(properties, "vcpu"): // passes the processor first
			arguments := "(void *cpu, " + event[3][1:]
			if strings.Trim(event[3], "( )") == "void" {
				arguments = "(void *cpu)"
			}
			b.WriteString("probe " + event[2] + arguments + ";\n")
		default:
			b.WriteString("probe " + event[2] + event[3] + ";\n")
		}
	}
	b.WriteString("};")
	return b.String()
}
