// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import "strings"

// argumentWords returns the words in the arguments of all probes that may be
// names of symbols: each one once, maxArgumentWords at most. It knows no
// machine's syntax: registers that are written without a sigil are among them.
func (f *File) argumentWords() []string {
	var words []string
	known := make(map[string]bool)
	last := ""
	for site := range f.Sites() {
		if site.Arguments == last {
			continue // of many sites in a row, most often
		}
		last = site.Arguments
		for text := last; ; {
			var word string
			if word, text = nextWord(text); word == "" {
				break
			}
			if len(word) < leastWord || known[word] {
				continue
			}
			if len(words) == maxArgumentWords {
				return words
			}
			word = strings.Clone(word) // the site's strings share memory with others'
			known[word] = true
			words = append(words, word)
		}
	}
	return words
}

// leastWord is the least length of a word that is looked up with others: most
// shorter ones are registers, and very many symbols end in them. A symbol of
// that name is found when it is asked for.
const leastWord = 3

// nextWord returns the first word of a text that may be the name of a symbol,
// and what follows it; "" if there is none. What begins with a percent sign or
// a digit is a register or a number.
func nextWord(text string) (word, rest string) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"': // a quoted name may hold anything
			if word, rest, ok := strings.Cut(text[i+1:], `"`); ok && word != "" {
				return word, rest
			}
		case isWordPart(c):
			end := i + 1
			for end < len(text) && (isWordPart(text[end]) || text[end] == '$') {
				end++
			}
			if (i == 0 || text[i-1] != '%') && (c < '0' || c > '9') {
				return text[i:end], text[end:]
			}
			i = end - 1
		}
	}
	return "", ""
}

// isWordPart reports whether symbols have such a byte in their names, to GNU
// as. A dollar sign can be in them, too; at the start it is a sigil.
func isWordPart(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '_' ||
		c == '.' || c >= 0x80
}
