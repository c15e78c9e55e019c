// SPDX-License-Identifier: BSD-2-Clause

// Package commandline has what the commands share: flags, help and completion,
// messages, names of arguments, debug files from servers. Command lines are
// read as users of GNU programs write them: "-vp 12", "-p12", "--pid=12" and
// "--pid 12" are known, flags and operands may stand in any order, and "--"
// ends the flags.
package commandline

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/ldso"
)

// Flags are the flags of a command. The zero value has none. A flag has one or
// more names: those of one letter are written "-p", others "--pid".
type Flags struct {
	// Rest takes the words after "--", unless it is nil. Otherwise they are
	// among those that Parse returns.
	Rest func(words []string) error

	named    map[string]flag
	answer   *Answer
	short    string // what -h says
	complete func(line []string) string
	words    map[string][]string // that can stand for placeholders of the help
}

type flag struct {
	set        func(value string) error
	takesValue bool
	isNone     bool // see Flags.Instead
}

// Answer is the error of [Flags.Parse] for a line that asks for a text, such as
// the help, instead of what the command does.
type Answer string

func (a Answer) Error() string { return string(a) }

func (f *Flags) add(names []string, added flag) {
	if f.named == nil {
		f.named = make(map[string]flag)
	}
	for _, name := range names {
		f.named[name] = added
	}
}

// Standard adds the flags that every command has: -h, which answers short,
// --help, --version, --man and --completion, and what the functions of shells
// ask for. values are what can stand for placeholders of the help beside those
// of [Flags.OneOf], see [newCompleter].
func (f *Flags) Standard(command, short, usage string, values map[string][]string) {
	f.short = short
	f.Answer(func() string { return short }, "h")
	f.Answer(func() string { return usage }, "help")
	f.Answer(func() string { return Version(command) }, "version")
	f.Answer(func() string { return Man(command, Version(command), usage) }, "man")
	f.Func(func(shell string) error {
		script, err := CompletionScript(shell, command)
		f.answer = (*Answer)(&script)
		return err
	}, "completion")
	f.complete = func(line []string) string {
		maps.Copy(values, f.words)
		return newCompleter(usage, values).complete(line)
	}
}

// Answer adds a flag that asks for a text.
func (f *Flags) Answer(text func() string, names ...string) {
	f.add(names,
		flag{set: func(string) error { a := Answer(text()); f.answer = &a; return nil }})
}

// Text adds a flag whose value is kept as it is. If it is repeated, the last
// value counts.
func (f *Flags) Text(to *string, names ...string) {
	f.Func(func(value string) error { *to = value; return nil }, names...)
}

// Texts adds a flag whose values are kept, see [Flags.List].
func (f *Flags) Texts(to *[]string, names ...string) {
	f.List(func(item string) error { *to = append(*to, item); return nil }, names...)
}

// Patterns adds a flag whose values are patterns of probes, see [Flags.List].
func (f *Flags) Patterns(to *[]elfnote.Pattern, names ...string) {
	f.List(func(item string) error { return AddPatterns(to, item) }, names...)
}

// AddPatterns reads patterns of probes.
func AddPatterns(to *[]elfnote.Pattern, words ...string) error {
	for _, word := range words {
		p, err := elfnote.ParsePattern(word)
		if err != nil {
			return err
		}
		*to = append(*to, p)
	}
	return nil
}

// Once adds a flag whose value is kept as it is, and that must not be repeated.
func (f *Flags) Once(to *string, names ...string) {
	given := false
	f.Func(func(value string) error {
		if given {
			return errors.New("is given a second time")
		}
		*to, given = value, true
		return nil
	}, names...)
}

// Func adds a flag whose values are given to a function, one call for each time
// that the flag is given.
func (f *Flags) Func(set func(value string) error, names ...string) {
	f.add(names, flag{set: set, takesValue: true})
}

// Time adds a flag whose value is a time: seconds, or a number with its unit.
func (f *Flags) Time(to *time.Duration, names ...string) {
	f.Func(func(value string) (err error) { *to, err = ParseTime(value); return err }, names...)
}

// ParseTime reads a time of more than 0.
func ParseTime(s string) (time.Duration, error) {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		s += "s"
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, errors.New("want seconds, or a number with its unit, such as 500ms or 2m")
	}
	return d, nil
}

// ParseLeast reads the least time of a call. It may be 0.
func ParseLeast(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil && d == 0 {
		return 0, nil
	}
	return ParseTime(s)
}

// Switch adds a flag that takes no value.
func (f *Flags) Switch(to *bool, names ...string) {
	f.add(names, flag{set: func(string) error { *to = true; return nil }})
}

// OneOf adds a flag whose value is one of some words, in any case, which the
// completion offers for the placeholder of the help.
func (f *Flags) OneOf(placeholder string, words []string, set func(word string), names ...string) {
	if f.words == nil {
		f.words = make(map[string][]string)
	}
	f.words[placeholder] = words
	f.Func(func(s string) error {
		word, last := strings.ToLower(s), len(words)-1
		if !slices.Contains(words, word) {
			return fmt.Errorf("want %s or %s", strings.Join(words[:last], ", "), words[last])
		}
		set(word)
		return nil
	}, names...)
}

// Instead adds a flag that does not exist but that people try. Its error is
// text, which says what to use.
func (f *Flags) Instead(text string, names ...string) {
	f.add(names, flag{set: func(string) error { return errors.New(text) }, isNone: true})
}

// List adds a flag that can be repeated, and whose value is a list as [Split]
// divides it. Each item is given to a function.
func (f *Flags) List(add func(item string) error, names ...string) {
	f.Func(func(value string) error {
		for _, item := range Split(value) {
			if err := add(item); err != nil {
				return err
			}
		}
		return nil
	}, names...)
}

// Names returns the names of all flags, without dashes.
func (f *Flags) Names() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(f.named)),
		func(name string) bool { return f.named[name].isNone })
}

// Parse sets the flags of a command line and returns the other words, or an
// [Answer].
func (f *Flags) Parse(args []string) (operands []string, err error) {
	if f.complete != nil && len(args) > 0 && args[0] == completionRequest {
		return nil, Answer(f.complete(args[1:]))
	}
	if len(args) > 0 && len(args) <= 2 && args[0] == "help" && !IsFileHere("help") {
		return nil, Answer(f.short)
	}
	for len(args) > 0 && err == nil {
		word := args[0]
		args = args[1:]
		switch {
		case word == "--" && f.Rest != nil:
			args, err = nil, f.Rest(args)
		case word == "--":
			operands, args = append(operands, args...), nil
		case strings.HasPrefix(word, "--"):
			args, err = f.setLong(word, args)
		case strings.HasPrefix(word, "-") && word != "-":
			args, err = f.setShort(word, args)
		default:
			operands = append(operands, word)
		}
	}
	if err == nil && f.answer != nil {
		err = *f.answer
	}
	if err != nil {
		return nil, err
	}
	return operands, nil
}

// setLong sets the flag of a word such as "--pid=12", or "--pid" with the value
// in the next word. It returns the words after it.
func (f *Flags) setLong(word string, next []string) ([]string, error) {
	name, value, hasValue := strings.Cut(word, "=")
	if set, ok := f.named[name[2:]]; ok && len(name) > len("--p") {
		return set.with(name, value, hasValue, next)
	}
	names := slices.DeleteFunc(f.Names(), func(name string) bool { return len(name) == 1 })
	if near := defs.NearestWord(name[2:], names); near != "" {
		return nil, fmt.Errorf("no such flag: %s (nearest: --%s)", name, near)
	}
	return nil, fmt.Errorf("no such flag: %s", name)
}

// setShort sets the flags of a word such as "-vp12". It returns the words after
// it.
func (f *Flags) setShort(word string, next []string) (_ []string, err error) {
	long, _, _ := strings.Cut(word, "=")
	if _, ok := f.named[long[1:]]; ok && len(long) > len("-p") {
		return nil, fmt.Errorf("no such flag: %s (it is written -%s)", long, long)
	}
	for i := 1; i < len(word) && err == nil; i++ {
		name, rest := "-"+word[i:i+1], word[i+1:]
		set, ok := f.named[name[1:]]
		switch {
		case !ok:
			return nil, fmt.Errorf("no such flag: %s", name)
		case set.takesValue:
			return set.with(name, strings.TrimPrefix(rest, "="), rest != "", next)
		}
		next, err = set.with(name, "", false, next)
	}
	return next, err
}

// with sets a flag. Its value, if it takes one that the word does not have, is
// the next word.
func (f flag) with(name, value string, hasValue bool, next []string) ([]string, error) {
	switch {
	case !f.takesValue && hasValue:
		return nil, fmt.Errorf("%s takes no value", name)
	case f.takesValue && !hasValue && len(next) == 0:
		return nil, fmt.Errorf("%s needs a value", name)
	case f.takesValue && !hasValue:
		value, next = next[0], next[1:]
	}
	switch err := f.set(value); {
	case err != nil && f.takesValue:
		return nil, fmt.Errorf("%s %q: %w", name, value, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return next, nil
}

// Split divides a list at its commas. Commas in parentheses and brackets, and
// those after a backslash, do not divide.
func Split(list string) []string {
	var items []string
	depth, from := 0, 0
	for i := 0; i < len(list); i++ {
		switch list[i] {
		case '\\':
			i++
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case ',':
			if depth <= 0 {
				items, from = append(items, strings.TrimSpace(list[from:i])), i+1
			}
		}
	}
	return append(items, strings.TrimSpace(list[from:]))
}

// ParsePIDs returns the process of a number, or all processes of a name as ps
// and top show it.
func ParsePIDs(s string) ([]int, error) {
	pid, err := strconv.ParseInt(s, 10, 32)
	switch {
	case err == nil && pid > 0:
		return []int{int(pid)}, nil
	case err == nil || s == "" || s[0] == '-':
		return nil, errors.New("want the number of a process, or its name")
	}
	var pids []int
	const longest = 15 // what the kernel keeps of a name
	comms, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range comms {
		name, err := os.ReadFile(path)
		if err != nil || strings.TrimSuffix(string(name), "\n") != s[:min(len(s), longest)] {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(path, "/")[2]); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	if slices.Sort(pids); len(pids) == 0 {
		return nil, errors.New("no process has that name; " +
			"want its number, or the name in ps -o comm")
	}
	return pids, nil
}

// IsPattern reports whether a word picks probes rather than names a file: it
// holds ':', '*', '?' or '[', and it does not start as a path does. A word that
// is a file in the current directory names that file, unless files are those of
// processes, whose current directory is another.
func IsPattern(word string, ofProcesses bool) bool {
	if !strings.ContainsAny(word, ":*?[") {
		return false
	}
	for _, prefix := range []string{"/", "./", "../"} {
		if strings.HasPrefix(word, prefix) {
			return false
		}
	}
	if ofProcesses {
		return true
	}
	_, err := os.Stat(word)
	return err != nil
}

// IsFileHere reports whether a bare name is that of a file in the current
// directory, which is meant before a library or program of that name.
func IsFileHere(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// IsMistaken reports whether a word that was taken for a file, program or
// library is none that can be found: it may have been meant for a probe.
func IsMistaken(word string) bool {
	if strings.ContainsAny(word, "/.") || IsFileHere(word) {
		return false
	}
	_, err := ldso.Find(word)
	return errors.Is(err, fs.ErrNotExist)
}

// FetchDebugFile is the argument with which usdtlist starts usdttrace to fetch
// the debug file of a build ID and print its path.
const FetchDebugFile = "--fetch-debug-file"
