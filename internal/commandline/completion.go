// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
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

// maxNames bounds the names that are offered for completion. What cannot be
// read has none.
const maxNames = 2000

// probesOf returns the probes of what a command line names, as patterns that
// pick them: of its files, else of those that its process maps, or all.
func probesOf(words []string) []Word {
	var files []string
	pid, all := 0, false
	for i, word := range words {
		switch {
		case i > 0 && (words[i-1] == "-p" || words[i-1] == "--pid"):
			if pids, _ := ParsePIDs(word); len(pids) > 0 { // a wrong one has no probes
				pid = pids[0]
			}
		case word == "-a" || word == "--all":
			all = true
		case word != "" && word[0] != '-' && !IsPattern(word, pid != 0):
			files = append(files, word)
		}
	}
	names := &names{known: make(map[string]bool)}
	for _, path := range files {
		if !strings.Contains(path, "/") && !IsFileHere(path) {
			path, _ = ldso.Find(path) // "" has no probes
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if file, err := elfnote.Open(path); err == nil {
			names.add(file)
			file.Close()
		}
	}
	if len(files) > 0 || pid == 0 && !all {
		return names.words
	}
	watcher := procwatch.NewWatcher(&procwatch.WatcherOptions{
		Filter: func(p proc.Process) bool { return pid == 0 || p.PID == pid },
		Handler: func(changes *procwatch.Changes) {
			for _, file := range changes.FilesAppeared {
				names.add(file.ELF())
			}
		},
	})
	if pid != 0 {
		_ = watcher.Sync(pid)
	} else {
		_ = watcher.SyncAll()
	}
	watcher.Close() // the handler may be called until then
	return names.words
}

type names struct {
	known map[string]bool
	words []Word
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
		n.words = append(n.words, Word{Text: name})
	}
}

// processWords returns the processes with their names.
func processWords() (words []Word) {
	fs := procfs.NewFS("")
	pids, _ := fs.PIDs()
	for _, pid := range pids {
		if p, err := proc.Find(fs, pid); err == nil && len(words) < maxNames {
			words = append(words,
				Word{Text: fmt.Sprint(pid), Explanation: terminal.Escape(p.Command)})
		}
	}
	return words
}

// NewCompleter returns what completes the words of a command with this help:
// its flags, processes, and the probes of the files and the process on the
// line. values are what can stand for other placeholders of the help.
func NewCompleter(usage string, values map[string][]string) *Completer {
	return &Completer{ParseHelp(usage), func(placeholder string, line []string) (words []Word) {
		switch placeholder {
		case "PID":
			return processWords()
		case "PATTERN", "PAIR":
			return probesOf(line)
		case "SHELL":
			return wordsOf(Shells)
		}
		return wordsOf(values[placeholder])
	}}
}

// Completion is what can stand for the last word of a command line.
type Completion struct {
	Words []Word
	Files bool // names of files can, too
}

// Word is one of them. Its explanation may be "".
type Word struct {
	Text, Explanation string
}

func wordsOf(texts []string) (words []Word) {
	for _, text := range texts {
		words = append(words, Word{Text: text})
	}
	return words
}

// Completer knows what can stand for values and other words.
type Completer struct {
	*Help
	// Values returns what can stand for a placeholder of the help, such as
	// "PID"; for "PATTERN" also what operands can be beside names of files.
	Values func(placeholder string, line []string) []Word
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
		all = c.values(name, before, value)
		for i := range all.Words {
			all.Words[i].Text = name + "=" + all.Words[i].Text
		}
		return all
	}
	if len(before) > 0 {
		if value, ok := c.value(before[len(before)-1]); ok && value != "" {
			return c.values(before[len(before)-1], before, current)
		}
	}
	if !strings.HasPrefix(current, "-") {
		return Completion{Words: starting(c.Values("PATTERN", before), current), Files: true}
	}
	for _, it := range c.Flags() {
		for _, f := range it.Flags {
			if strings.HasPrefix(f.Name, current) &&
				!slices.ContainsFunc(all.Words, func(w Word) bool { return w.Text == f.Name }) {
				all.Words = append(all.Words, Word{f.Name, it.summary()})
			}
		}
	}
	return all
}

// values returns the values of a flag. Of a list it completes the last item.
func (c *Completer) values(flag string, before []string, current string) Completion {
	placeholder, _ := c.value(flag)
	placeholder, isList := strings.CutSuffix(placeholder, ",...")
	head := ""
	if comma := strings.LastIndexByte(current, ','); isList && comma >= 0 {
		head, current = current[:comma+1], current[comma+1:]
	}
	words := starting(c.Values(placeholder, before), current)
	for i := range words {
		words[i].Text = head + words[i].Text
	}
	return Completion{Words: words, Files: strings.HasPrefix(placeholder, "FILE")}
}

func starting(words []Word, with string) []Word {
	return slices.DeleteFunc(words, func(w Word) bool { return !strings.HasPrefix(w.Text, with) })
}

// String returns a line for each word, with its explanation after a tab, and a
// last line ":files" if names of files can stand there, too. The functions of
// the shells read that.
func (c Completion) String() string {
	var b strings.Builder
	for _, w := range c.Words {
		switch {
		case strings.ContainsAny(w.Text, "\n\t"): // no shell could take it
		case w.Explanation == "":
			b.WriteString(w.Text + "\n")
		default:
			b.WriteString(w.Text + "\t" + w.Explanation + "\n")
		}
	}
	if c.Files {
		b.WriteString(":files\n")
	}
	return b.String()
}

// completionRequest is the first word of a command line when a shell's function
// asks for a Completion. The words after it are those of the line. The last of
// them is to be completed.
const completionRequest = "__complete"

// Shells are those for which there is a CompletionScript.
var Shells = []string{"bash", "zsh", "fish"}

// CompletionScript returns the function by which one of the Shells completes a
// command.
func CompletionScript(shell, command string) (string, error) {
	if !slices.Contains(Shells, shell) {
		return "", fmt.Errorf("want one of %s", strings.Join(Shells, ", "))
	}
	return fmt.Sprintf("# Completion of %s for %s. To have it always, put it into %s\n", command,
		shell, fmt.Sprintf(places[shell], command)) +
		strings.ReplaceAll(scripts[shell], "COMMAND", command), nil
}

// places are where shells look for completions.
var places = map[string]string{
	"bash": "/usr/share/bash-completion/completions/%s",
	"zsh":  "a folder of $fpath, as _%s",
	"fish": "~/.config/fish/completions/%s.fish",
}

var scripts = map[string]string{
	// The words are divided at blanks here: bash would divide them at colons,
	// too, and puts back what it completes only from the last colon on.
	"bash": `_COMMAND() {
	local line=${COMP_LINE:0:COMP_POINT} current= words=() found= files= text
	read -ra words <<<"$line"
	if [[ $line != *[[:space:]] && ${#words[@]} -gt 1 ]]; then
		current=${words[-1]}
		unset 'words[-1]'
	fi
	COMPREPLY=()
	while IFS= read -r text; do
		if [[ $text == :files ]]; then
			files=1
		else
			COMPREPLY+=("${text%%$'\t'*}")
		fi
	done < <("${words[0]/#\~/$HOME}" __complete "${words[@]:1}" "$current" 2>/dev/null)
	if [[ $files ]]; then
		compopt -o filenames 2>/dev/null
		while IFS= read -r text; do
			COMPREPLY+=("$text")
		done < <(compgen -f -- "$current")
	fi
	if [[ $current == *:* && $COMP_WORDBREAKS == *:* ]]; then
		local i head=${current%"${current##*:}"}
		for i in "${!COMPREPLY[@]}"; do
			COMPREPLY[i]=${COMPREPLY[i]#"$head"}
		done
	fi
	if [[ $current == --*=* && $COMP_WORDBREAKS == *=* ]]; then
		local i
		for i in "${!COMPREPLY[@]}"; do
			COMPREPLY[i]=${COMPREPLY[i]#"${current%%=*}="}
		done
	fi
}
complete -F _COMMAND COMMAND
`,
	"zsh": `#compdef COMMAND
_COMMAND() {
	local -a lines texts shown
	local line files= text
	lines=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	for line in $lines; do
		if [[ $line == :files ]]; then
			files=1
			continue
		fi
		text=${line%%$'\t'*}
		texts+=("$text")
		if [[ $line == *$'\t'* ]]; then
			shown+=("$text  -- ${line#*$'\t'}")
		else
			shown+=("$text")
		fi
	done
	(( $#texts )) && compadd -l -d shown -a texts
	[[ -n $files ]] && _files
	return 0
}
if [[ $funcstack[1] == _COMMAND ]]; then
	_COMMAND "$@"
else
	compdef _COMMAND COMMAND
fi
`,
	"fish": `function __COMMAND_complete
	set -l words (commandline -opc)
	set -l found ($words[1] __complete $words[2..-1] (commandline -ct) 2>/dev/null)
	for line in $found
		if test "$line" = ":files"
			__fish_complete_path (commandline -ct)
		else
			echo $line
		end
	end
end
complete -c COMMAND -f -a '(__COMMAND_complete)'
`,
}
