// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gousdt/gousdt/internal/terminal"
)

// appendHeading appends the lines above the probes of a file: which it is, and
// whose.
func appendHeading(line []byte, l *listing) []byte {
	line = terminal.AppendEscaped(append(line, "File: "...), l.name())
	m := l.mapped
	if m == nil {
		return append(line, '\n')
	}
	if m.deleted {
		line = append(line, " (deleted)"...)
	}
	if len(m.users) == 0 {
		line = append(line, " (not mapped)"...)
	}
	line = append(line, '\n')
	if m.here != m.path {
		line = append(terminal.AppendEscaped(append(line, "  Path here: "...), m.here), '\n')
	}
	if l.showUsers && len(m.users) > 0 {
		line = append(append(append(line, "  Mapped by: "...), m.usersText()...), '\n')
	}
	return line
}

// usersText names the processes by what they run: "postgres 812 813, python3
// 99". A process that sees the file at another path, or deleted, stands apart.
func (m *mapped) usersText() string {
	var programs []string
	var pids [][]string
	for i := range m.users {
		u := &m.users[i]
		program := terminal.Escape(u.process.Command)
		if u.path != m.path || u.deleted != m.deleted {
			path := terminal.Escape(u.path)
			if u.deleted {
				path += ", deleted"
			}
			program = fmt.Sprintf("%s (as %s)", program, path)
		}
		at := slices.Index(programs, program)
		if at < 0 {
			at = len(programs)
			programs, pids = append(programs, program), append(pids, nil)
		}
		pids[at] = append(pids[at], strconv.Itoa(u.process.PID))
	}
	for i := range programs {
		programs[i] += " " + strings.Join(pids[i], " ")
	}
	return strings.Join(programs, ", ")
}

// users adds the members about the processes that map a file.
func (p *jsonPrinter) users(m *mapped) {
	j := &p.json
	j.Text("path", m.path)
	j.Boolean("deleted", m.deleted)
	j.Key("pids")
	j.Begin('[')
	for i := range m.users {
		j.Int(int64(m.users[i].process.PID))
	}
	j.End(']')
	j.Key("processes")
	j.Begin('[')
	for i := range m.users {
		u := &m.users[i]
		j.NewLine(2)
		j.Begin('{')
		j.Signed("pid", int64(u.process.PID))
		j.Text("command", u.process.Command)
		j.Text("path", u.path)
		j.Boolean("deleted", u.deleted)
		j.End('}')
	}
	j.End(']')
}
