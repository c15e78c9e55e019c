// SPDX-License-Identifier: BSD-2-Clause

package argspec

import "strings"

// nextArgument splits off the first argument of a string: what lies between
// leading and trailing blanks is the argument, rest is what follows it.
//
// Blanks separate arguments, but they also stand inside brackets and
// parentheses, around commas and around the operators of a hand-written sum. A
// size and its @ always begin a new argument, even inside brackets that nobody
// closed, so that one broken argument does not swallow its neighbours.
func nextArgument(text string) (argument, rest string) {
	start := 0
	for start < len(text) && isBlank(text[start]) {
		start++
	}
	depth := 0
	for i := start; i < len(text); i++ {
		switch c := text[i]; {
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth = max(depth-1, 0)
		case c == '"':
			// A quoted symbol may hold anything. A lone quote is just a byte.
			if end := strings.IndexByte(text[i+1:], '"'); end >= 0 {
				i += end + 1
			}
		case isBlank(c):
			end := i
			for i < len(text) && isBlank(text[i]) {
				i++
			}
			next := text[i:]
			if next == "" || hasSize(next) || depth == 0 && !continues(text[start:end], next) {
				return text[start:end], next
			}
			i--
		}
	}
	return text[start:], ""
}

// hasSize reports whether the text begins with a size and @.
func hasSize(text string) bool {
	_, length := parseSize(text)
	return length > 0
}

// continues reports whether next, which comes after a blank, is more of the
// operand that ends in before and not an argument of its own.
func continues(before, next string) bool {
	switch last := before[len(before)-1]; last {
	case ',', '@', '+', '*', '/', '|', '&', '^', '<', '>', '~', '-', '#', '$', '%':
		return true
	}
	switch first := next[0]; first {
	case ',', ')', ']':
		return true
	case '(':
		// "8 (%rbp)" is a displacement and its base: nothing in it is a
		// register or an immediate yet. "%rax (%rbp)" are two arguments.
		operand := before[strings.LastIndexByte(before, '@')+1:]
		return strings.HasPrefix(next, "(%") && !strings.ContainsAny(operand, "%$[")
	case '+', '-', '*', '/', '|', '&', '^', '<', '>':
		// "8 - 4(%rbp)" is one sum, "8 -4(%rbp)" are two arguments. An operator
		// between two arguments belongs to neither.
		operand := strings.TrimLeft(next, string(first))
		after := strings.TrimLeft(operand, blanks)
		if len(after) < len(operand) && after != "" && !hasSize(after) {
			return true
		}
	}
	return intelContinues(before, next)
}

// sizePrefix is what stands before the @ of an argument.
type sizePrefix struct {
	size   int // 0 where larger than maxSize
	signed bool
	float  bool
}

// parseSize parses "[-]SIZE[f]@" at the start of the text and returns how long
// it is: 0 where there is none.
func parseSize(text string) (prefix sizePrefix, length int) {
	i := 0
	if i < len(text) && text[i] == '-' {
		prefix.signed = true
		i++
	}
	first := i
	for ; i < len(text) && isDigit(text[i]); i++ {
		if prefix.size <= maxSize {
			prefix.size = prefix.size*10 + int(text[i]-'0')
		}
	}
	if i == first {
		return sizePrefix{}, 0
	}
	if prefix.size > maxSize {
		prefix.size = 0
	}
	if i < len(text) && text[i] == 'f' {
		// The bits of a float are taken as they are: nothing to extend.
		prefix.float, prefix.signed = true, false
		i++
	}
	if i == len(text) || text[i] != '@' {
		return sizePrefix{}, 0
	}
	return prefix, i + 1
}
