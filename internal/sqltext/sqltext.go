// SPDX-License-Identifier: BSD-2-Clause

// Package sqltext makes statements of SQL equal that differ only in numbers,
// texts, comments and blanks.
package sqltext

import (
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
		return sqllexer.ObfuscateAndNormalize(withoutCut(statement, dbms), obfuscator, normalizer,
			sqllexer.WithDBMS(dbms))
	}
}

// withoutCut removes a comment, or a text between dollar signs, that was cut at
// the end of a statement. The obfuscator takes neither for what it is: the text
// would remain, and the traceparent in a comment of sqlcommenter.
func withoutCut(statement string, dbms sqllexer.DBMSType) string {
	lexer := sqllexer.New(statement, sqllexer.WithDBMS(dbms))
	for at := 0; ; {
		token := lexer.Scan()
		isCut := token.Type == sqllexer.ERROR
		switch {
		case token.Type == sqllexer.EOF:
			return statement
		case isCut && strings.HasPrefix(token.Value, "/*"):
			return statement[:at]
		case isCut && strings.HasPrefix(token.Value, "$"):
			return statement[:at] + "''"
		}
		at += len(token.Value)
	}
}
