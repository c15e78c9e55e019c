// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/DataDog/go-sqllexer"

	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/language/sqltext"
	"github.com/gousdt/gousdt/trace"
)

// The functions of texts that attributes can have. They turn an unbounded
// number of texts into few, or into what the semantic conventions want.
var functions = map[string]struct {
	of   func(string) string
	text int // how many bytes are read of a text that is a name without a length
}{
	"operation": {operationOf, 16}, "statement": {statementOf, 128}, "summary": {summaryOf, 128},
}

var functionTerm = regexp.MustCompile(`^\s*(operation|statement|summary)\((.*)\)\s*$`)

// splitFunction returns the function of an attribute, nil for none, and the
// expression of its text. The bare name of an argument stands for the text of
// it.
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

// operations are the words that statements of SQL begin with, in PostgreSQL and
// MySQL among others.
var operations = strings.Fields("ABORT ALTER ANALYZE BEGIN CALL CHECKPOINT CLOSE CLUSTER COMMENT " +
	"COMMIT COPY CREATE DEALLOCATE DECLARE DELETE DESCRIBE DISCARD DO DROP END EXECUTE EXPLAIN " +
	"FETCH FLUSH GRANT HANDLER IMPORT INSERT KILL LISTEN LOAD LOCK MERGE MOVE NOTIFY OPTIMIZE " +
	"PREPARE REASSIGN REFRESH REINDEX RELEASE REPLACE RESET REVOKE ROLLBACK SAVEPOINT SECURITY " +
	"SELECT SET SHOW START TABLE TRUNCATE UNLISTEN UPDATE USE VACUUM VALUES WITH XA")

// otherOperation is the semantic conventions' name for an unknown value.
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
	if word := strings.ToUpper(statement[:end]); slices.Contains(operations, word) {
		return word
	}
	return otherOperation
}

// sql reads statements. It is safe for concurrent use.
var sql = sync.OnceValue(func() func(string) (string, *sqllexer.StatementMetadata) {
	normalize := sqltext.Normalizer(sqllexer.DBMSPostgres, true)
	return func(text string) (string, *sqllexer.StatementMetadata) {
		normal, about, err := normalize(text)
		if err != nil {
			return "", &sqllexer.StatementMetadata{}
		}
		return normal, about
	}
})

// statementOf returns a statement with a question mark in the place of each
// number and text, so that statements that differ only in these are equal.
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

// failureTerm is the name of the probe at which a call failed. Other calls have
// no value of it.
const failureTerm = "error(probe)"

// metricAttribute is an attribute of a metric: a constant, or a key of the
// aggregation, which a function may change.
type metricAttribute struct {
	name     string
	constant *trace.Value
	key      int // index of the key
	function func(string) string
}

// parseAttributes sets the attributes, and adds what they need to the keys of
// the aggregation. Attributes of one text share its key.
func (m *metric) parseAttributes() error {
	by := &m.aggregation.By
	own := len(*by)
	anyFunction, anyText := false, false
	for _, name := range slices.Sorted(maps.Keys(m.config.Attributes)) {
		if name == "" {
			return errors.New("attributes: one has no name")
		}
		text := m.config.Attributes[name]
		if q := quotedTerm.FindStringSubmatch(strings.TrimSpace(text)); q != nil {
			constant := trace.ValueOf(q[1] + q[2])
			m.attributes = append(m.attributes, metricAttribute{name: name, constant: &constant})
			continue
		}
		function, of := splitFunction(text)
		switch {
		case of == failureTerm && m.kind != ofPair:
			return fmt.Errorf("attributes.%s: %s is for a pair", name, of)
		case of == failureTerm:
			function, of = failures(m.aggregation.Latency.Pair), "probe"
		case function != nil:
			anyFunction = true
		case !slices.Contains(eventTerms, of):
			anyText = true
		}
		key := slices.Index((*by)[own:], of)
		if key < 0 {
			key = len(*by) - own
			*by = append(*by, of)
		}
		m.attributes = append(m.attributes,
			metricAttribute{name: name, key: own + key, function: function})
	}
	if anyFunction && !anyText {
		// Normalized statements keep their operation and tables. So texts whose
		// attributes are equal share one key.
		m.aggregation.Normalize = func(_, text string) string { return statementOf(text) }
	}
	return nil
}

// of returns the value from the keys of a row.
func (a *metricAttribute) of(keys []trace.Value) trace.Value {
	if a.constant != nil {
		return *a.constant
	}
	v := keys[a.key]
	if a.function == nil || v.Kind() != trace.Text {
		return v
	}
	data, _ := v.Data()
	if text := a.function(string(data)); text != "" {
		return trace.ValueOf(text)
	}
	return trace.Value{}
}

// failures returns a function that returns the names of probes at which calls
// of a pair fail, and "" for other probes.
func failures(pair string) func(string) string {
	failed := make(map[string]bool)
	parsed, _ := defs.ParsePairPattern(pair) // it was parsed before
	if call, ok := defs.Builtin().Call(parsed); ok {
		for _, p := range call.Failed {
			failed[p.Name] = true
		}
	}
	if _, probe, ok := strings.Cut(pair, "|"); ok {
		failed[probe] = true
	}
	return func(probe string) string {
		if _, name, _ := strings.Cut(probe, ":"); failed[name] {
			return name
		}
		return ""
	}
}
