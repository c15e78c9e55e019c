// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gousdt/gousdt/internal/ldso"
)

func isPattern(word string) bool {
	if !strings.ContainsAny(word, ":*?[") {
		return false
	}
	for _, prefix := range []string{"/", "./", "../"} {
		if strings.HasPrefix(word, prefix) {
			return false
		}
	}
	_, err := os.Stat(word)
	return err != nil
}

// isMistaken tells whether a word that was taken for a file is none that can be
// found: it may have been meant for a probe.
func isMistaken(word string) bool {
	if strings.ContainsAny(word, "/.") {
		return false
	}
	_, err := ldso.Find(word, nil)
	var missing *ldso.NotFoundError
	return errors.As(err, &missing)
}

// splitKeys splits at commas outside of parentheses.
func splitKeys(s string) []string {
	var keys []string
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				keys, from = append(keys, strings.TrimSpace(s[from:i])), i+1
			}
		}
	}
	return append(keys, strings.TrimSpace(s[from:]))
}

// splitCommand splits at blanks; ' and " quote, \ quotes the next character
// outside of '.
func splitCommand(s string) ([]string, error) {
	var words []string
	var word []byte
	inWord, quote := false, byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(s):
			i++
			word, inWord = append(word, s[i]), true
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				word = append(word, c)
			}
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if inWord {
				words, word, inWord = append(words, string(word)), nil, false
			}
		default:
			word, inWord = append(word, c), true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a %c is not closed", quote)
	}
	if inWord {
		words = append(words, string(word))
	}
	if len(words) == 0 {
		return nil, errors.New("the command is empty")
	}
	return words, nil
}
