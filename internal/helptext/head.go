// SPDX-License-Identifier: BSD-2-Clause

package helptext

import "strings"

// This is done without regular expressions: to link them and the tables of
// Unicode would take a command a tenth of the time that it starts in.

// begin returns the item that a line begins, and whether it begins one. Its
// head ends at two blanks. Flags can also end at one, before what is neither a
// flag nor a value.
func begin(line string) (Item, bool) {
	text := strings.TrimLeft(line, " ")
	if indent := len(line) - len(text); indent < 2 || indent >= continues-1 {
		return Item{}, false
	}
	head, explanation, ok := strings.Cut(text, "  ")
	explanation = strings.TrimLeft(explanation, " ")
	ok = ok && explanation != ""
	if name := nameLength(text); name > 0 {
		if !ok || !strings.HasPrefix(text[name:], " ") {
			head, explanation, ok = cutFlags(text)
		}
		return Item{Head: head, Flags: flags(head), Lines: []string{explanation}}, ok
	}
	return Item{Head: head, Lines: []string{explanation}}, ok
}

// cutFlags cuts a line after its flags and their values. It reports whether
// there is a blank or nothing behind them.
func cutFlags(text string) (head, explanation string, ok bool) {
	rest := text
	for {
		rest = rest[nameLength(rest):]
		if value := nextWord(rest); isValue(value) {
			rest = rest[1+len(strings.TrimSuffix(value, ",")):]
			if more := nextWord(rest); strings.HasPrefix(more, "[") {
				rest = rest[1+len(more):]
			}
		}
		next, ok := strings.CutPrefix(rest, ", ")
		if !ok || nameLength(next) == 0 {
			break
		}
		rest = next
	}
	return text[:len(text)-len(rest)], strings.TrimLeft(rest, " "), rest == "" || rest[0] == ' '
}

// flags returns the flags of a head that has nothing but flags, each with at
// most two values. The first value is kept.
func flags(head string) (all []Flag) {
	for part := range strings.SplitSeq(head, ", ") {
		words := strings.Fields(part)
		if len(words) > 3 || len(words[0]) < 2 || nameLength(words[0]) != len(words[0]) ||
			words[0] == "--" {
			return nil
		}
		flag := Flag{Name: words[0]}
		if len(words) > 1 {
			flag.Value = words[1]
		}
		all = append(all, flag)
	}
	return all
}

// nameLength returns the length of the name of a flag at the beginning of a
// text, or of a -- that stands for itself, 0 if there is none.
func nameLength(text string) int {
	letters := strings.TrimPrefix(strings.TrimPrefix(text, "-"), "-")
	n := len(text) - len(letters)
	if n == 0 || letters == "" || letters[0] < 'a' || letters[0] > 'z' {
		if n == 2 {
			return n
		}
		return 0
	}
	for n < len(text) && (text[n] >= 'a' && text[n] <= 'z' || text[n] == '-') {
		n++
	}
	return n
}

// nextWord returns the word behind a single blank, "" if there is none.
func nextWord(text string) string {
	text, ok := strings.CutPrefix(text, " ")
	if !ok {
		return ""
	}
	word, _, _ := strings.Cut(text, " ")
	return word
}

// isValue reports whether a word stands for a value: it has capitals.
func isValue(word string) bool { return strings.ToLower(word) != word }
