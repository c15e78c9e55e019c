// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"

	"github.com/DataDog/go-sqllexer"
)

// setNormalize reads how texts that are keys are changed.
func (o *options) setNormalize(dialect string) error {
	switch dialect {
	case "sql":
		// PostgreSQL reads texts as the standard says: a backslash in them is
		// nothing special.
		o.normalize = normalizer(sqllexer.DBMSPostgres)
	case "mysql":
		o.normalize = normalizer(sqllexer.DBMSMySQL)
	default:
		return errors.New("want sql, or mysql for its dialect")
	}
	return nil
}

// normalizer returns a function that makes statements equal that differ only in
// numbers, texts, comments and blanks.
func normalizer(dialect sqllexer.DBMSType) func(string) string {
	obfuscator := sqllexer.NewObfuscator(sqllexer.WithReplaceBoolean(true))
	normalizer := sqllexer.NewNormalizer(sqllexer.WithKeepSQLAlias(true),
		sqllexer.WithKeepIdentifierQuotation(true))
	return func(text string) string {
		normalized, _, err := sqllexer.ObfuscateAndNormalize(text, obfuscator, normalizer,
			sqllexer.WithDBMS(dialect))
		if err != nil {
			return text
		}
		return normalized
	}
}
