// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/internal/truncate"
)

// pasteLine returns the line for a probe. A tool that has no way to write a
// name gets an error that says why.
type pasteLine func(path string, p *elfnote.Probe, sameName bool) (string, error)

// pasteLines are the lines of formats. What can be written is what the tools'
// own parsers read: seen with bpftrace 0.27, bcc 0.37 and perf 7.2.
var pasteLines = map[string]pasteLine{formatBpftrace: bpftraceLine, formatBCC: bccLine,
	formatPerf: perfLine, formatLibbpf: libbpfLine}

var errNoCode = errors.New("file holds no code to run (use the executable or library itself)")

// errLongName means that a name is of a hostile file: no tool takes a word of
// that length.
var errLongName = fmt.Errorf("name of more than %d bytes", maxText)

func (l *lister) paste(list *listing, line pasteLine) (printed int, err error) {
	if !attachable(list.elf) {
		return 0, errNoCode
	}
	// The line may be used from another directory.
	path := list.path
	if list.mapped != nil {
		path = list.mapped.here
	}
	if path, err = filepath.Abs(path); err != nil {
		return 0, err
	}
	providers := make(map[string]string) // of a name, "" for several
	for i := range list.probes {
		probe := &list.probes[i]
		if earlier, seen := providers[probe.Name]; seen && earlier != probe.Provider {
			providers[probe.Name] = ""
		} else {
			providers[probe.Name] = probe.Provider
		}
	}
	for i := range list.probes {
		probe := &list.probes[i]
		text, err := "", errLongName
		if max(len(probe.Provider), len(probe.Name)) <= maxText {
			text, err = line(path, probe, providers[probe.Name] != probe.Provider)
		}
		if err != nil {
			l.WarnOf("probes left out", "%s: left out %s:%s: %v", list.path,
				truncate.Name(probe.Provider), truncate.Name(probe.Name), err)
			continue
		}
		l.out.WriteString(text + "\n")
		printed++
	}
	return printed, nil
}

// isPlain reports whether a string has only letters, digits and what else is
// allowed.
func isPlain(s, others string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte(others, c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// bpftraceLine: usdt:PATH:PROVIDER:NAME, each in quotation marks where its
// lexer would stop at a character.
func bpftraceLine(path string, p *elfnote.Probe, _ bool) (string, error) {
	line := "usdt"
	for _, part := range []string{path, p.Provider, p.Name} {
		if !isPrintable(part) || strings.ContainsAny(part, `"*?[`) {
			return "", errors.New("bpftrace has no way to write it")
		}
		if !isPlain(part, "_-./") {
			part = `"` + part + `"`
		}
		line += ":" + part
	}
	return line, nil
}

// bccLine: u:PATH:NAME, which all of bcc's tools take. Where two providers have
// the name, the provider is needed, which only some of them (trace) take.
func bccLine(path string, p *elfnote.Probe, sameName bool) (string, error) {
	parts := []string{path, p.Name}
	if sameName {
		parts = []string{path, p.Provider, p.Name}
	}
	for _, part := range parts {
		// A blank or bracket ends the probe, a plus in the name is an offset.
		if !isPrintable(part) || strings.ContainsAny(part, ":*( ") ||
			(part != path && strings.Contains(part, "+")) {
			return "", errors.New("bcc has no way to write it")
		}
	}
	return "u:" + strings.Join(parts, ":"), nil
}

// isPrintable reports whether a string can be shown and typed as it is.
func isPrintable(s string) bool {
	return s != "" && terminal.Escape(s) == s
}

// perfLine: a command that makes the event sdt_PROVIDER:NAME.
func perfLine(path string, p *elfnote.Probe, _ bool) (string, error) {
	if !isPlain(p.Provider, "_") || !isPlain(p.Name, "_") {
		return "", errors.New("perf's event names have only letters, digits and _")
	}
	return "perf probe -x " + shellWord(path) + " %sdt_" + p.Provider + ":" + p.Name, nil
}

// shellWord returns a text as one word of a shell. Bytes that a terminal might
// obey are escaped, as bash, zsh, ksh and POSIX of 2024 have it.
func shellWord(s string) string {
	switch {
	case isPlain(s, "_-./+,@%"):
		return s
	case utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }):
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	word := []byte("$'")
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\'' || c == '\\':
			word = append(word, '\\', c)
		case c < ' ' || c > '~':
			word = appendOctal(word, c)
		default:
			word = append(word, c)
		}
	}
	return string(append(word, '\''))
}

// appendOctal appends an escape of C and of shells. Octal ones end after three
// digits, hexadecimal ones do not.
func appendOctal(b []byte, c byte) []byte {
	return append(b, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
}

// libbpfLine: the section of a BPF program in C.
func libbpfLine(path string, p *elfnote.Probe, _ bool) (string, error) {
	if strings.Contains(path+p.Provider+p.Name, ":") {
		return "", errors.New("libbpf divides at every colon")
	}
	line := []byte(`SEC("usdt/`)
	for i, part := range []string{path, p.Provider, p.Name} {
		if i > 0 {
			line = append(line, ':')
		}
		for j := range len(part) {
			switch c := part[j]; {
			case c == '"' || c == '\\':
				line = append(line, '\\', c)
			case c < ' ' || c > '~':
				line = appendOctal(line, c)
			default:
				line = append(line, c)
			}
		}
	}
	return string(append(line, `")`...)), nil
}
