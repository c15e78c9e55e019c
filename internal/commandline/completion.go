// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"context"
	"embed"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/ldso"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/usdt/proc"
)

// Shells are the shells for which there is a [CompletionScript].
var Shells = []string{"bash", "zsh", "fish"}

//go:embed completion
var scripts embed.FS

// CompletionScript returns the script that lets one of the [Shells] complete a
// command.
func CompletionScript(shell, command string) (string, error) {
	if !slices.Contains(Shells, shell) {
		return "", fmt.Errorf("want one of %s", strings.Join(Shells, ", "))
	}
	script, err := scripts.ReadFile("completion/" + shell)
	return strings.ReplaceAll(string(script), "COMMAND", command), err
}

// completionRequest is the first word of a command line when a shell's function
// asks for completion. The words after it are those of the line. The last of
// them is to be completed.
const completionRequest = "__complete"

// word is what can stand for the last word of a command line. Its explanation
// may be "".
type word struct{ text, explanation string }

// completer completes the words of a command with this help.
type completer struct {
	flags []Flag
	// values returns the words that can stand for a placeholder of the help,
	// such as "PID". Those of "PATTERN" can also be operands, as can names of
	// files.
	values func(placeholder string, line []string) []word
}

// newCompleter returns what completes flags, processes, and the probes of the
// files and the process on the line. values are what can stand for other
// placeholders of the help.
func newCompleter(usage string, values map[string][]string) *completer {
	return &completer{HelpFlags(usage), func(placeholder string, line []string) (words []word) {
		texts := values[placeholder]
		switch placeholder {
		case "PID":
			return processWords()
		case "PATTERN", "PAIR":
			return probesOf(line)
		case "SHELL":
			texts = Shells
		}
		for _, text := range texts {
			words = append(words, word{text: text})
		}
		return words
	}}
}

// value returns what stands for the value of a flag, "" if it takes none or if
// there is no such flag.
func (c *completer) value(name string) string {
	i := slices.IndexFunc(c.flags, func(f Flag) bool { return f.Name == name })
	if i < 0 {
		return ""
	}
	return c.flags[i].Value
}

// complete returns what can stand for the last of the words: a line for each,
// with its explanation after a tab, and a last line ":files" if names of files
// can stand there, too. The functions of the shells read that.
func (c *completer) complete(line []string) string {
	if len(line) == 0 {
		return ""
	}
	before, current := line[:len(line)-1], line[len(line)-1]
	head, ofLast := "", "" // what stands before the completed part; the value of the flag before
	if len(before) > 0 {
		ofLast = c.value(before[len(before)-1])
	}
	placeholder, files := "PATTERN", false
	name, value, isAssigned := strings.Cut(current, "=")
	switch {
	case slices.Contains(before, "--"):
		return ":files\n"
	case isAssigned && strings.HasPrefix(current, "--"):
		placeholder = c.value(name)
		head, current = name+"=", value
	case ofLast != "":
		placeholder = ofLast
	case strings.HasPrefix(current, "-"):
		placeholder = ""
	default:
		files = true
	}
	placeholder, isList := strings.CutSuffix(placeholder, ",...")
	if comma := strings.LastIndexByte(current, ','); isList && comma >= 0 {
		head, current = head+current[:comma+1], current[comma+1:]
	}
	var words []word
	if placeholder != "" {
		words = c.values(placeholder, before)
	} else if head == "" {
		for _, f := range c.flags {
			words = append(words, word{f.Name, f.Summary})
		}
	}
	var b strings.Builder
	for _, w := range words {
		if !strings.HasPrefix(w.text, current) || strings.ContainsAny(w.text, "\n\t") {
			continue // the latter no shell could take
		}
		b.WriteString(head + w.text)
		if w.explanation != "" {
			b.WriteString("\t" + w.explanation)
		}
		b.WriteByte('\n')
	}
	if files || strings.HasPrefix(placeholder, "FILE") {
		b.WriteString(":files\n")
	}
	return b.String()
}

// maxNames bounds the names that are offered.
const maxNames = 2000

// processWords returns the processes with their names. What cannot be read has
// none.
func processWords() (words []word) {
	fs := procfs.FS("")
	pids, _ := fs.PIDs()
	for _, pid := range pids {
		if p, err := proc.Find("", pid); err == nil && len(words) < maxNames {
			words = append(words, word{fmt.Sprint(pid), terminal.Escape(p.Command)})
		}
	}
	return words
}

// probesOf returns the probes of what a command line names, as patterns that
// pick them: of its files, else of those that its process maps, or all.
func probesOf(line []string) (words []word) {
	files, pid, all := targetsOf(line)
	known := make(map[string]bool)
	add := func(file *elfnote.File) { // the probes whose names need no quoting
		for site, err := range file.Sites() {
			name := site.Provider + ":" + site.Name
			if err == nil && len(words) < maxNames && !known[name] &&
				!strings.ContainsAny(name, "*?[]\\ '\"$`!") && terminal.Escape(name) == name {
				known[name] = true
				words = append(words, word{text: name})
			}
		}
	}
	for _, path := range files {
		if !strings.Contains(path, "/") && !IsFileHere(path) {
			path, _ = ldso.Find(path) // "" has no probes
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if file, err := elfnote.Open(path); err == nil {
			add(file)
			file.Close()
		}
	}
	if len(files) > 0 || pid == 0 && !all {
		return words
	}
	_ = EachFile(pid, func(pair *procwatch.ProcessFile) { add(pair.File.ELF()) }, nil)
	return words
}

// targetsOf returns what a command line names.
func targetsOf(line []string) (files []string, pid int, all bool) {
	for i, word := range line {
		switch {
		case i > 0 && (line[i-1] == "-p" || line[i-1] == "--pid"):
			if pids, _ := ParsePIDs(word); len(pids) > 0 { // a wrong one has no probes
				pid = pids[0]
			}
		case word == "-a" || word == "--all":
			all = true
		case word != "" && word[0] != '-' && !IsPattern(word, pid != 0):
			files = append(files, word)
		}
	}
	return files, pid, all
}

// EachFile calls do once for each file with a matching probe that processes
// map, or the process pid if that is not 0. It calls failed, unless that is
// nil, with each error about what cannot be read.
func EachFile(pid int, do func(*procwatch.ProcessFile), failed func(error),
	patterns ...elfnote.Pattern,
) error {
	seen := make(map[procfs.FileID]bool)
	options := &procwatch.WatcherOptions{Handler: func(changes *procwatch.Changes) {
		for _, err := range changes.Errors {
			if failed != nil {
				failed(err)
			}
		}
		for _, pair := range changes.Appeared {
			if id := pair.File.ID(); !seen[id] {
				seen[id] = true
				do(pair)
			}
		}
	}}
	if pid != 0 {
		options.Filter = func(p proc.Process) bool { return p.PID == pid }
	}
	watcher := procwatch.NewWatcher(options, patterns...)
	defer watcher.Close() // the handler may be called until then
	if pid != 0 {
		return watcher.Sync(context.Background(), pid)
	}
	return watcher.Sync(context.Background(), 0)
}
