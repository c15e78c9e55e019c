// SPDX-License-Identifier: BSD-2-Clause

// Package sqltext makes statements of SQL equal that differ only in numbers,
// texts, comments, blanks, the lengths of lists and the names of savepoints.
package sqltext

import (
	"fmt"
	"regexp"
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
		normal, about, err := sqllexer.ObfuscateAndNormalize(prepare(statement, dbms), obfuscator,
			normalizer, sqllexer.WithDBMS(dbms))
		normal = strings.ReplaceAll(strings.ReplaceAll(normal, mark+" ", ""), mark, "")
		return shorten(savepoint.ReplaceAllString(strings.TrimSpace(normal), "$1?")), about, err
	}
}

var (
	// savepoint is what stands before a name that drivers number, and the name.
	savepoint = regexp.MustCompile(`(?i)((?:^|; )(?:savepoint|release(?: savepoint)?|` +
		`rollback(?: work| transaction)? to(?: savepoint)?) )(?:"[^"]*"|[^\s";]+)`)
	normalToken = regexp.MustCompile("\\s*(?:\"[^\"]*\"?|`[^`]*`?|[][(),;]|[^][\\s(),;\"`]+|$)")
	parameter   = regexp.MustCompile(` \$\d+\b`)
	manyValues  = regexp.MustCompile(`\?(?:, \?)+`)
	field       = regexp.MustCompile(`(?i)^\w+\s+from\b`)
	blanks      = regexp.MustCompile(`^(?:\s*|--.*|#.*|/\*(?s:.*))$`)
	constant    = regexp.MustCompile(`^(?: \w+)? \?(?: :: [\w ]+)?$`)
)

// mark stands after each parenthesis and bracket, and at the begin, while the
// normalizer works. It keeps the normalizer from joining values, which loses
// and doubles commas, and from leaving out a statement's first parentheses.
const mark = "\x01"

// joinValues leaves one of constants of equal form that follow each other in a
// list of IN, a row of VALUES, or an ARRAY. Arguments of functions stay.
func joinValues(tokens []string) []string {
	type list struct {
		joins, rows bool // its constants are joined; lists in it are rows of VALUES
		from        int  // its last element begins there
		before      string
	}
	lists, joined := []list{{}}, slices.Clone(tokens[:0:0])
	before := "" // the word before a token
	for _, token := range append(tokens, ")") {
		word, l := strings.ToLower(strings.TrimSpace(token)), &lists[len(lists)-1]
		switch word {
		case "(", "[":
			l.rows = word == "(" && (before == "values" || l.rows && before == ",")
			joins := l.rows || word == "(" && before == "in" || word == "[" && before == "array" ||
				l.joins && (before == word || before == ",")
			joined = append(joined, token)
			lists = append(lists, list{joins: joins, from: len(joined)})
		case ",", ")", "]":
			element := strings.Join(joined[l.from:], "")
			if l.joins && element == l.before && constant.MatchString(element) {
				joined = joined[:l.from-1] // and the comma
			}
			l.before = element
			joined = append(joined, token)
			if l.from = len(joined); word != "," && len(lists) > 1 {
				lists = lists[:len(lists)-1]
			}
		default:
			joined = append(joined, token)
			l.joins, l.rows = l.joins && word != "select", false
		}
		before = word
	}
	return joined[:len(joined)-1]
}

// shorten leaves one of the values of IN and ARRAY, and one of the equal rows
// of VALUES. It ends a list where the statement was cut within it. Parameters
// get the numbers that they have if each list is of one value or row.
func shorten(normal string) string {
	tokens := joinValues(normalToken.FindAllString(normal, -1))
	short := slices.Clone(tokens)
	for i := len(short) - 2; i >= 0; i-- { // inner lists before those around them
		var list []string
		size := 0
		switch strings.ToLower(strings.TrimSpace(short[i]) + strings.TrimSpace(short[i+1])) {
		case "in(", "array[":
			list, size = shortList(short[i+1:])
		case "values(":
			list, size = shortRows(short[i+1:])
		}
		short = slices.Replace(short, i+1, i+1+size, list...)
	}
	text := strings.Join(short, "")
	if slices.Equal(short, tokens) {
		return text
	}
	numbers := make(map[string]string)
	return parameter.ReplaceAllStringFunc(text, func(text string) string {
		if numbers[text] == "" {
			numbers[text] = fmt.Sprintf(" $%d", len(numbers)+1)
		}
		return numbers[text]
	})
}

// listSize returns the number of tokens to the end of a list in parentheses or
// brackets, or 0 if it was cut, and the elements.
func listSize(tokens []string) (size int, elements [][]string) {
	depth, from := 0, 1
	for i, token := range tokens {
		switch strings.TrimSpace(token) {
		case "(", "[":
			depth++
		case ")", "]":
			if depth--; depth == 0 {
				return i + 1, append(elements, tokens[from:i])
			}
		case ",":
			if depth == 1 {
				elements = append(elements, tokens[from:i])
				from = i + 1
			}
		}
	}
	return 0, append(elements, tokens[from:])
}

// shortList returns a list with the first of its values, or nothing if there is
// anything else in it than values.
func shortList(tokens []string) (list []string, size int) {
	size, elements := listSize(tokens)
	if size == 0 {
		if size = len(tokens); len(elements) > 1 {
			elements = elements[:len(elements)-1] // it may not be whole
		}
	}
	end, first := " )", formOf(elements[0])
	if strings.TrimSpace(tokens[0]) == "[" {
		end = " ]"
	}
	for _, element := range elements {
		if form := formOf(element); form != first || !constant.MatchString(form) &&
			form != " ( ? )" && form != " [ ? ]" {
			return nil, 0
		}
	}
	return slices.Concat(tokens[:1], elements[0], []string{end}), size
}

// shortRows returns the rows that have different forms.
func shortRows(tokens []string) (rows []string, size int) {
	var forms []string
	for {
		n, _ := listSize(tokens[size:])
		row := tokens[size:][:n]
		if n == 0 && forms == nil {
			return shortList(tokens)
		} else if n == 0 { // cut
			return rows, len(tokens)
		}
		form := parameter.ReplaceAllString(strings.Join(row, ""), " ?")
		if !slices.Contains(forms, form) {
			if forms = append(forms, form); len(forms) > 1 {
				rows = append(rows, ",")
			}
			rows = append(rows, row...)
		}
		size += n
		switch rest := tokens[size:]; {
		case len(rest) == 1 && rest[0] == ",": // cut
			return rows, len(tokens)
		case len(rest) < 2 || rest[0] != "," || strings.TrimSpace(rest[1]) != "(":
			return rows, size
		}
		size++
	}
}

// formOf returns what values of equal form have in common: a parameter is a
// value, and so are several.
func formOf(tokens []string) string {
	text := parameter.ReplaceAllString(strings.Join(tokens, ""), " ?")
	return manyValues.ReplaceAllString(text, "?")
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
//   - A NULL in a list is a value, and so is the field of extract, as it is for
//     pg_stat_statements.
func prepare(statement string, dbms sqllexer.DBMSType) string {
	var b strings.Builder
	b.WriteString(mark + " ")
	before, function := "", "" // the token before, and the one before that
	isValue := false           // the token before is one, and a sign after it is an operator
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
		case isValueThere(token.Type, rest, before, function):
			text, isValue = "0", true
		default:
			isValue = rest[0] == ')' || rest[0] == ']' || slices.Contains(values, token.Type)
		}
		if size == 0 { // a zero byte, which ends the statement for the lexer
			break
		}
		b.WriteString(text)
		if text == "(" || text == "[" {
			b.WriteString(mark)
		}
		if !blanks.MatchString(text) {
			function, before = before, text
		}
		at += size
	}
	return b.String()
}

// isValueThere reports whether a word is a value where it stands.
func isValueThere(t sqllexer.TokenType, rest, before, function string) bool {
	if t == sqllexer.NULL {
		return before == "(" || before == "[" || before == ","
	}
	return before == "(" && strings.EqualFold(function, "extract") && field.MatchString(rest)
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
