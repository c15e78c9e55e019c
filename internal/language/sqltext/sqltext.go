// SPDX-License-Identifier: BSD-2-Clause

// Package sqltext makes statements of SQL equal that differ only in numbers,
// texts, comments and blanks.
package sqltext

import (
	"slices"
	"strings"

	"github.com/DataDog/go-sqllexer"
)

// Normalizer returns a function that has a question mark in the place of each
// number and text of a statement, and leaves out comments. It returns the
// tables of the statement, too, if they are wanted. The function is safe for
// concurrent use.
func Normalizer(
	dbms sqllexer.DBMSType, tables bool,
) func(statement string) (normal string, about *sqllexer.StatementMetadata, err error) {
	obfuscator := sqllexer.NewObfuscator(sqllexer.WithReplaceBoolean(true))
	normalizer := sqllexer.NewNormalizer(sqllexer.WithKeepSQLAlias(true),
		sqllexer.WithKeepIdentifierQuotation(true), sqllexer.WithCollectTables(tables))
	return func(statement string) (string, *sqllexer.StatementMetadata, error) {
		return sqllexer.ObfuscateAndNormalize(prepare(statement, dbms), obfuscator, normalizer,
			sqllexer.WithDBMS(dbms))
	}
}

// prepare changes what the obfuscator takes for something else: texts and
// numbers would remain, the traceparent in a comment of sqlcommenter too.
//
//   - A comment, or a text between dollar signs, that was cut at the end of a
//     statement is left out.
//   - Comments of PostgreSQL contain others.
//   - MySQL has a comment after two dashes only if a blank follows.
//   - A number may have underscores, or a base.
//   - A sign after a value is no part of the number: x-1 is not x+1.
func prepare(statement string, dbms sqllexer.DBMSType) string {
	var b strings.Builder
	isValue := false // the token before is one, and a sign after it is an operator
	for at := 0; at < len(statement); {
		rest := statement[at:]
		token := sqllexer.New(rest, sqllexer.WithDBMS(dbms)).Scan()
		text, size := token.Value, len(token.Value)
		switch {
		case strings.HasPrefix(rest, "/*"):
			if dbms == sqllexer.DBMSPostgres {
				size = nestedComment(rest)
				text = " "
			} else if token.Type == sqllexer.ERROR {
				size = 0
			}
			if size == 0 {
				return b.String()
			}
		case token.Type == sqllexer.ERROR && strings.HasPrefix(rest, "$"):
			return b.String() + "''"
		case dbms == sqllexer.DBMSMySQL && token.Type == sqllexer.COMMENT && len(rest) > 2 &&
			rest[0] == '-' && rest[2] > ' ':
			text, size, isValue = "- ", 1, false
		case token.Type == sqllexer.NUMBER:
			size += restOfNumber(rest[size:])
			text = "0"
			if sign := rest[:1]; isValue && (sign == "-" || sign == "+") {
				text = sign + " 0"
			}
			isValue = true
		case token.Type == sqllexer.SPACE, token.Type == sqllexer.COMMENT:
		default:
			isValue = rest[0] == ')' || rest[0] == ']' || slices.Contains(values, token.Type)
		}
		if size == 0 { // a zero byte, which ends the statement for the lexer
			break
		}
		b.WriteString(text)
		at += size
	}
	return b.String()
}

// restOfNumber returns how many of the bytes after a number the lexer should
// have taken with it, as in 1_000 or 0x1.8p3.
func restOfNumber(rest string) (size int) {
	for size < len(rest) && (rest[size] == '_' || isAlphanumeric(rest[size]) ||
		rest[size] == '.' && size+1 < len(rest) && isAlphanumeric(rest[size+1])) {
		size++
	}
	return size
}

// values are the types of tokens that are values.
var values = []sqllexer.TokenType{sqllexer.STRING, sqllexer.IDENT, sqllexer.QUOTED_IDENT,
	sqllexer.DOLLAR_QUOTED_STRING, sqllexer.POSITIONAL_PARAMETER, sqllexer.BIND_PARAMETER,
	sqllexer.FUNCTION, sqllexer.SYSTEM_VARIABLE, sqllexer.BOOLEAN, sqllexer.NULL}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// nestedComment returns the size of a comment that may contain others, or 0 if
// it has no end.
func nestedComment(text string) int {
	depth := 0
	for i := 0; i+1 < len(text); i++ {
		switch text[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			if i++; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}
