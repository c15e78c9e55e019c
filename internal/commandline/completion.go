// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"fmt"
	"os"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/helptext"
	"github.com/gousdt/gousdt/internal/ldso"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/proc"
)

// maxNames bounds the names that are offered for completion. What cannot be
// read has none.
const maxNames = 2000

// probeSource is where the probes are.
type probeSource struct {
	Files []string // paths, and names of programs and libraries
	PID   int      // the files that it maps, if there are no Files
	All   bool     // those of all processes, if there is no PID
}

// sourceOf returns the files and the process that a command line names.
func sourceOf(words []string) (of probeSource) {
	for i, word := range words {
		switch {
		case i > 0 && (words[i-1] == "-p" || words[i-1] == "--pid"):
			of.PID, _ = ParsePID(word) // a wrong one has no probes
		case word == "-a" || word == "--all":
			of.All = true
		case word != "" && word[0] != '-' && !IsPattern(word, of.PID != 0):
			of.Files = append(of.Files, word)
		}
	}
	return of
}

// Probes returns the probes as patterns that pick them.
func (s probeSource) Probes() []helptext.Word {
	names := &names{known: make(map[string]bool)}
	for _, name := range s.Files {
		path := name
		if !strings.Contains(name, "/") && !IsFileHere(name) {
			found, err := ldso.Find(name)
			if err != nil {
				continue
			}
			path = found
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if file, err := elfnote.Open(path); err == nil {
			names.add(file)
			file.Close()
		}
	}
	if len(s.Files) > 0 || s.PID == 0 && !s.All {
		return names.words
	}
	options := &proc.WatcherOptions{Handler: func(changes *proc.Changes) {
		for _, file := range changes.FilesAppeared {
			names.add(file.ELF())
		}
	}}
	if s.PID != 0 {
		options.Filter = func(p proc.Process) bool { return p.PID == s.PID }
	}
	watcher := proc.NewWatcher(options)
	if s.PID != 0 {
		_ = watcher.Sync(s.PID)
	} else {
		_ = watcher.SyncAll()
	}
	watcher.Close() // the handler may be called until then
	return names.words
}

type names struct {
	known map[string]bool
	words []helptext.Word
}

// add adds the probes of a file whose names need no quoting.
func (n *names) add(file *elfnote.File) {
	for site, err := range file.Sites() {
		if err != nil || len(n.words) == maxNames {
			continue
		}
		name := site.Provider + ":" + site.Name
		if n.known[name] || strings.ContainsAny(name, "*?[]\\ '\"$`!") ||
			terminal.Escape(name) != name {
			continue
		}
		n.known[name] = true
		n.words = append(n.words, helptext.Word{Text: name})
	}
}

// processWords returns the processes with their names.
func processWords() (words []helptext.Word) {
	fs := proc.NewFS("")
	pids, _ := fs.PIDs()
	for _, pid := range pids {
		if p, err := fs.Process(pid); err == nil && len(words) < maxNames {
			words = append(words,
				helptext.Word{Text: fmt.Sprint(pid), Explanation: terminal.Escape(p.Command)})
		}
	}
	return words
}

// Completer returns what completes the words of a command with this help: its
// flags, processes, and the probes of the files and the process on the line.
// values are what can stand for other placeholders of the help.
func Completer(usage string, values map[string][]string) *helptext.Completer {
	return &helptext.Completer{
		Help: helptext.Parse(usage),
		Values: func(placeholder string, words []string) ([]helptext.Word, bool) {
			switch placeholder {
			case "PID":
				return processWords(), false
			case "PATTERN", "PAIR":
				return sourceOf(words).Probes(), false
			case "SHELL":
				return helptext.Words(helptext.Shells...), false
			}
			return helptext.Words(values[placeholder]...), false
		},
		Operands: func(words []string, _ string) []helptext.Word {
			return sourceOf(words).Probes()
		},
	}
}
