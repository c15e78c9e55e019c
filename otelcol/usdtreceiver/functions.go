// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/DataDog/go-sqllexer"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/providers"
	"github.com/gousdt/gousdt/trace"
)

// The functions that an attribute can have of a text. They turn texts of
// unbounded number into few, or into what the semantic conventions want.
var functions = map[string]struct {
	of   func(string) string
	text int // how many bytes are read of a text that is a name without a length
}{
	"operation": {operationOf, 16}, "statement": {statementOf, 128}, "summary": {summaryOf, 128},
}

var functionTerm = regexp.MustCompile(`^\s*(operation|statement|summary)\((.*)\)\s*$`)

// splitFunction returns the function that an attribute has, nil for none, and
// the expression of its text. A name is that of a text.
func splitFunction(text string) (function func(string) string, of string) {
	m := functionTerm.FindStringSubmatch(text)
	if m == nil {
		return nil, text
	}
	of = strings.TrimSpace(m[2])
	if plainTerm.MatchString(of) {
		of = fmt.Sprintf("str(%s, %d)", of, functions[m[1]].text)
	}
	return functions[m[1]].of, of
}

// operations are the words that statements of SQL begin with, those of
// PostgreSQL and MySQL among them.
var operations = func() map[string]bool {
	known := make(map[string]bool)
	for word := range strings.FieldsSeq("ABORT ALTER ANALYZE BEGIN CALL CHECKPOINT CLOSE CLUSTER " +
		"COMMENT COMMIT COPY CREATE DEALLOCATE DECLARE DELETE DESCRIBE DISCARD DO DROP END EXECUTE " +
		"EXPLAIN FETCH FLUSH GRANT HANDLER IMPORT INSERT KILL LISTEN LOAD LOCK MERGE MOVE NOTIFY " +
		"OPTIMIZE PREPARE REASSIGN REFRESH REINDEX RELEASE REPLACE RESET REVOKE ROLLBACK SAVEPOINT " +
		"SECURITY SELECT SET SHOW START TABLE TRUNCATE UNLISTEN UPDATE USE VACUUM VALUES WITH XA") {
		known[word] = true
	}
	return known
}()

// otherOperation is what the semantic conventions call a value that is none of
// those that are known.
const otherOperation = "_OTHER"

// operationOf returns the first word of a statement, in capitals, if statements
// begin with it. Comments and parentheses before it do not count.
func operationOf(statement string) string {
	for {
		statement = strings.TrimLeft(statement, " \t\r\n(;")
		rest, comment := strings.CutPrefix(statement, "/*")
		if line, ok := strings.CutPrefix(statement, "--"); ok {
			_, statement, _ = strings.Cut(line, "\n")
		} else if !comment {
			break
		} else {
			_, statement, _ = strings.Cut(rest, "*/")
		}
	}
	if statement == "" {
		return ""
	}
	end := strings.IndexFunc(statement, func(r rune) bool { return !unicode.IsLetter(r) })
	if end < 0 {
		end = len(statement)
	}
	if word := strings.ToUpper(statement[:end]); operations[word] {
		return word
	}
	return otherOperation
}

// sql reads statements. It is safe for concurrent use.
var sql = sync.OnceValue(func() func(string) (string, *sqllexer.StatementMetadata) {
	obfuscator := sqllexer.NewObfuscator(sqllexer.WithReplaceBoolean(true))
	normalizer := sqllexer.NewNormalizer(sqllexer.WithKeepSQLAlias(true),
		sqllexer.WithKeepIdentifierQuotation(true), sqllexer.WithCollectTables(true))
	return func(text string) (string, *sqllexer.StatementMetadata) {
		normal, about, err := sqllexer.ObfuscateAndNormalize(text, obfuscator, normalizer,
			sqllexer.WithDBMS(sqllexer.DBMSPostgres))
		if err != nil {
			return "", &sqllexer.StatementMetadata{}
		}
		return normal, about
	}
})

// statementOf returns a statement with a question mark in the place of each
// number and text: what differs only in these is equal.
func statementOf(statement string) string {
	normal, _ := sql()(statement)
	return normal
}

// maxSummary is the limit of the semantic conventions.
const maxSummary = 255

// summaryOf returns the operation and the tables of a statement.
func summaryOf(statement string) string {
	operation := operationOf(statement)
	if operation == "" {
		return ""
	}
	_, about := sql()(statement)
	summary := operation
	for _, table := range about.Tables {
		if len(summary)+1+len(table) > maxSummary {
			break
		}
		summary += " " + table
	}
	return summary
}

// failureTerm is the probe that has ended a call that failed, and nothing of
// other calls.
const failureTerm = "error(probe)"

// failures returns a function that returns the names of probes that end calls
// which failed, and "" for others.
func failures(pair elfnote.PairPattern) func(string) string {
	failed := make(map[string]bool)
	if call, ok := providers.Builtin().Call(pair); ok {
		for _, p := range call.Failed {
			failed[p.Name] = true
		}
	}
	if _, probe, ok := strings.Cut(pair.String(), "|"); ok {
		failed[probe] = true
	}
	return func(probe string) string {
		if _, name, _ := strings.Cut(probe, ":"); failed[name] {
			return name
		}
		return ""
	}
}

// normalize returns what makes texts equal that have equal attributes, so
// that they take the room of one: nil if a text is an attribute itself.
func (m *metric) normalize(own int) func(string) string {
	used := false
	for _, e := range m.edits {
		if e.constant != nil {
			continue
		}
		of := m.aggregation.By[own+e.key]
		used = used || e.function != nil && of != "probe"
		if e.function == nil && !slices.Contains(eventTerms, of) {
			return nil
		}
	}
	if !used {
		return nil
	}
	// The operation and the tables of this are those of the statement.
	return statementOf
}

// edit is what becomes of a key of a metric on its way to an attribute.
type edit struct {
	constant *trace.Value // it has no key
	key      int          // number of the key, behind the own ones
	function func(string) string
}

// edited returns the attributes' values from the keys of a row.
func (m *metric) edited(keys []trace.Value) []trace.Value {
	var values []trace.Value
	for _, e := range m.edits {
		if e.constant != nil {
			values = append(values, *e.constant)
			continue
		}
		v := keys[e.key]
		if data, _ := v.Data(); e.function != nil && v.Kind() == trace.Text {
			if v = (trace.Value{}); data != nil {
				if text := e.function(string(data)); text != "" {
					v = trace.ValueOf(text)
				}
			}
		}
		values = append(values, v)
	}
	return values
}
