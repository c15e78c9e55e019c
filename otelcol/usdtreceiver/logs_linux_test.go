// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/plog"
)

func (s *sinks) eachRecord(visit func(plog.LogRecord)) {
	for _, sent := range s.logs.AllLogs() {
		for _, resource := range sent.ResourceLogs().All() {
			for _, scope := range resource.ScopeLogs().All() {
				for _, record := range scope.LogRecords().All() {
					visit(record)
				}
			}
		}
	}
}

func TestLogs(t *testing.T) {
	b := startPostgres(t)
	const limit = 3
	s, end := started(t, map[string]any{
		"logs": []any{
			map[string]any{"event": "postgresql:query__start",
				"where": `str(query, 10) == "SELECT 'lo"`},
			map[string]any{"event": "postgresql:query__start", "rate_limit": limit,
				"where":      `str(query, 10) == "VALUES ('l"`,
				"attributes": map[string]any{"text": "str(query, 8)"}},
		},
	})
	s.awaitAttached(b.File, "logs[0]", "logs[1]")
	b.Query("SELECT 'log'")
	const n = 60
	b.Query(strings.Repeat("SELECT 'log';", n)) // one hit: they are one message
	for range n {
		b.Query("VALUES ('log')")
	}
	end()
	var texts []string
	limited, hits := 0, int64(0)
	s.eachRecord(func(r plog.LogRecord) {
		qt.Check(t, qt.Equals(r.EventName(), "postgresql:query__start"))
		if text, ok := r.Attributes().Get("usdt.argument.query"); ok {
			texts = append(texts, text.Str())
			return
		}
		limited++
		stands, _ := r.Attributes().Get("usdt.hits")
		hits += stands.Int()
	})
	qt.Check(t, qt.DeepEquals(texts, []string{"SELECT 'log'", strings.Repeat("SELECT 'log';", n)}))
	qt.Check(t, qt.IsTrue(limited > 0 && limited < n))
	qt.Check(t, qt.IsTrue(hits >= int64(limited) && hits <= n))
}
