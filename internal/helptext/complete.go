// SPDX-License-Identifier: BSD-2-Clause

package helptext

import (
	"fmt"
	"slices"
	"strings"
)

// Completion is what can stand for the last word of a command line.
type Completion struct {
	Words []Word
	Files bool // names of files can, too
}

// Word is one of them. What explains it may be "".
type Word struct {
	Text, Explanation string
}

// Words returns words without an explanation.
func Words(texts ...string) (words []Word) {
	for _, text := range texts {
		words = append(words, Word{Text: text})
	}
	return words
}

// Completer knows what can stand for values and other words.
type Completer struct {
	*Help
	// Values returns the values of a flag, by what stands for them in the text,
	// such as "PID". More are values that Files has.
	Values func(placeholder string, words []string) (values []Word, files bool)
	// Operands returns what can stand there beside names of files.
	Operands func(words []string, current string) []Word
}

// Complete returns what can stand for the last of the words.
func (c *Completer) Complete(words []string) Completion {
	if len(words) == 0 {
		return Completion{}
	}
	before, current := words[:len(words)-1], words[len(words)-1]
	if slices.Contains(before, "--") {
		return Completion{Files: true}
	}
	if name, value, ok := strings.Cut(current, "="); ok && strings.HasPrefix(current, "--") {
		all := c.values(name, before, value)
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
	if strings.HasPrefix(current, "-") {
		return c.flags(current)
	}
	return Completion{Words: starting(c.Operands(before, current), current), Files: true}
}

// flags returns the flags that begin so.
func (c *Completer) flags(current string) (all Completion) {
	for _, it := range c.Flags() {
		for _, f := range it.Flags {
			word := Word{f.Name, it.summary()}
			if strings.HasPrefix(f.Name, current) &&
				!slices.ContainsFunc(all.Words, func(w Word) bool { return w.Text == f.Name }) {
				all.Words = append(all.Words, word)
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
	words, files := c.Values(placeholder, before)
	words = starting(words, current)
	for i := range words {
		words[i].Text = head + words[i].Text
	}
	return Completion{Words: words, Files: files || strings.HasPrefix(placeholder, "FILE")}
}

func starting(words []Word, with string) []Word {
	return slices.DeleteFunc(words, func(w Word) bool { return !strings.HasPrefix(w.Text, with) })
}

// String returns a line for each word, with what explains it behind a tab, and
// a last line ":files" if names of files can stand there, too. The functions of
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

// Request is the first word of a command line when a shell's function asks for
// a Completion. The words after it are those of the line. The last of them is
// to be completed.
const Request = "__complete"

// Shells are those for which there is a Script.
var Shells = []string{"bash", "zsh", "fish"}

// CheckShell returns an error for a shell for which there is no Script.
func CheckShell(shell string) error {
	if slices.Contains(Shells, shell) {
		return nil
	}
	return fmt.Errorf("want one of %s", strings.Join(Shells, ", "))
}

// Script returns the function by which one of the Shells completes a command.
func Script(shell, command string) string {
	return fmt.Sprintf("# Completion of %s for %s. To have it always, put it into %s\n", command,
		shell,
		fmt.Sprintf(places[shell], command)) + strings.ReplaceAll(scripts[shell],
		"COMMAND", command)
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
