// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
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
	"github.com/gousdt/gousdt/proc"
)

// Shells are those for which there is a CompletionScript.
var Shells = []string{"bash", "zsh", "fish"}

//go:embed completion
var scripts embed.FS

// CompletionScript returns the function by which one of the Shells completes a
// command.
func CompletionScript(shell, command string) (string, error) {
	if !slices.Contains(Shells, shell) {
		return "", fmt.Errorf("want one of %s", strings.Join(Shells, ", "))
	}
	script, err := scripts.ReadFile("completion/" + shell)
	return strings.ReplaceAll(string(script), "COMMAND", command), err
}

// completionRequest is the first word of a command line when a shell's function
// asks for a Completion. The words after it are those of the line. The last of
// them is to be completed.
const completionRequest = "__complete"

// Completion is what can stand for the last word of a command line.
type Completion struct {
	Words []Word
	Files bool // names of files can, too
}

// Word is one of them. Its explanation may be "".
type Word struct {
	Text, Explanation string
}

// String returns a line for each word, with its explanation after a tab, and a
// last line ":files" if names of files can stand there, too. The functions of
// the shells read that.
func (c Completion) String() string {
	var b strings.Builder
	for _, w := range c.Words {
		if strings.ContainsAny(w.Text, "\n\t") {
			continue // no shell could take it
		}
		b.WriteString(w.Text)
		if w.Explanation != "" {
			b.WriteString("\t" + w.Explanation)
		}
		b.WriteByte('\n')
	}
	if c.Files {
		b.WriteString(":files\n")
	}
	return b.String()
}

// Completer completes the words of a command with this help.
type Completer struct {
	*Help
	// Values returns what can stand for a placeholder of the help, such as
	// "PID"; for "PATTERN" also what operands can be beside names of files.
	Values func(placeholder string, line []string) []Word
}

// NewCompleter returns what completes flags, processes, and the probes of the
// files and the process on the line. values are what can stand for other
// placeholders of the help.
func NewCompleter(usage string, values map[string][]string) *Completer {
	return &Completer{ParseHelp(usage), func(placeholder string, line []string) (words []Word) {
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
			words = append(words, Word{Text: text})
		}
		return words
	}}
}

// Complete returns what can stand for the last of the words.
func (c *Completer) Complete(words []string) (all Completion) {
	if len(words) == 0 {
		return all
	}
	before, current := words[:len(words)-1], words[len(words)-1]
	if slices.Contains(before, "--") {
		return Completion{Files: true}
	}
	if name, value, ok := strings.Cut(current, "="); ok && strings.HasPrefix(current, "--") {
		return c.values(name, before, name+"=", value)
	}
	if len(before) > 0 {
		name := before[len(before)-1]
		if value, ok := c.value(name); ok && value != "" {
			return c.values(name, before, "", current)
		}
	}
	if !strings.HasPrefix(current, "-") {
		return Completion{Words: starting(c.Values("PATTERN", before), "", current), Files: true}
	}
	for _, it := range c.Flags() {
		for _, f := range it.Flags {
			if !slices.ContainsFunc(all.Words, func(w Word) bool { return w.Text == f.Name }) {
				all.Words = append(all.Words, Word{f.Name, it.summary()})
			}
		}
	}
	all.Words = starting(all.Words, "", current)
	return all
}

// values returns the values of a flag, after what stands before them in the
// word. Of a list it completes the last item.
func (c *Completer) values(flag string, before []string, head, current string) Completion {
	placeholder, _ := c.value(flag)
	placeholder, isList := strings.CutSuffix(placeholder, ",...")
	if comma := strings.LastIndexByte(current, ','); isList && comma >= 0 {
		head, current = head+current[:comma+1], current[comma+1:]
	}
	return Completion{Words: starting(c.Values(placeholder, before), head, current),
		Files: strings.HasPrefix(placeholder, "FILE")}
}

// starting returns the words that start with a text, after what stands before
// them in the word.
func starting(words []Word, head, with string) (all []Word) {
	for _, w := range words {
		if strings.HasPrefix(w.Text, with) {
			all = append(all, Word{head + w.Text, w.Explanation})
		}
	}
	return all
}

// maxNames bounds the names that are offered.
const maxNames = 2000

// processWords returns the processes with their names. What cannot be read has
// none.
func processWords() (words []Word) {
	fs := procfs.NewFS("")
	pids, _ := fs.PIDs()
	for _, pid := range pids {
		if p, err := proc.Find(fs, pid); err == nil && len(words) < maxNames {
			words = append(words, Word{fmt.Sprint(pid), terminal.Escape(p.Command)})
		}
	}
	return words
}

// probesOf returns the probes of what a command line names, as patterns that
// pick them: of its files, else of those that its process maps, or all.
func probesOf(line []string) (words []Word) {
	var files []string
	pid, all := 0, false
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
	known := make(map[string]bool)
	add := func(file *elfnote.File) { // the probes whose names need no quoting
		for site, err := range file.Sites() {
			name := site.Provider + ":" + site.Name
			if err == nil && len(words) < maxNames && !known[name] &&
				!strings.ContainsAny(name, "*?[]\\ '\"$`!") && terminal.Escape(name) == name {
				known[name] = true
				words = append(words, Word{Text: name})
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
	watcher := procwatch.NewWatcher(&procwatch.WatcherOptions{
		Filter: func(p proc.Process) bool { return pid == 0 || p.PID == pid },
		Handler: func(changes *procwatch.Changes) {
			for _, file := range changes.FilesAppeared {
				add(file.ELF())
			}
		},
	})
	if pid != 0 {
		_ = watcher.Sync(pid)
	} else {
		_ = watcher.SyncAll()
	}
	watcher.Close() // the handler may be called until then
	return words
}
