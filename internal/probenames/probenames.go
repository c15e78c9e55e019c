// SPDX-License-Identifier: BSD-2-Clause

// Package probenames finds the names of probes and of processes for completion
// in shells. What cannot be read has no names.
package probenames

import (
	"fmt"
	"os"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/helptext"
	"github.com/gousdt/gousdt/internal/ldso"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/proc"
)

// maxNames bounds what a shell is to show.
const maxNames = 2000

// Source is where the probes are.
type Source struct {
	Files []string // paths, and names as the dynamic linker and PATH have them
	PID   int      // the files that it maps, if there are no Files
	All   bool     // those of all processes, if there is no PID
}

// SourceOf returns the files and the process that a command line names.
func SourceOf(words []string) (of Source) {
	for i, word := range words {
		switch {
		case i > 0 && (words[i-1] == "-p" || words[i-1] == "--pid"):
			of.PID, _ = commandline.ParsePID(word) // a wrong one has no probes
		case word == "-a" || word == "--all":
			of.All = true
		case word != "" && word[0] != '-' && !commandline.IsPattern(word, of.PID != 0):
			of.Files = append(of.Files, word)
		}
	}
	return of
}

// Probes returns the probes as patterns that pick them.
func (s Source) Probes() []helptext.Word {
	names := &names{known: make(map[string]bool)}
	for _, name := range s.Files {
		path := name
		if !strings.Contains(name, "/") && !commandline.IsFileHere(name) {
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

// Processes returns the processes with their names.
func Processes() (words []helptext.Word) {
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
