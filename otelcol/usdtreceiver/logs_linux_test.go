// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
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

// A text that the program itself has never read is brought into its memory.
func TestLogsHaveTextsThatAProgramHasNotTouched(t *testing.T) {
	testprog.RequireBPF(t)
	gcc := testneeds.Tool(t, "gcc", "gcc")
	path := filepath.Join(t.TempDir(), "program")
	qt.Assert(t, qt.IsNil(os.WriteFile(path+".c", []byte(`
#include <sys/sdt.h>
#include <stdio.h>
static const char text[4096] __attribute__((aligned(4096))) = "foo";
int main(void)
{
	while (getchar() != EOF)
		DTRACE_PROBE1(literal, passed, text);
	return 0;
}
`), 0o644)))
	include := filepath.Join(filepath.Dir(testprog.Path(t, "target-pie")), "include")
	out, err := exec.Command(gcc, "-O2", "-I", include, "-o", path, path+".c").CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	cmd := exec.Command(path)
	stdin, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	s, end := started(t, map[string]any{"logs": []any{map[string]any{"event": "literal:passed",
		"attributes": map[string]any{"text": "str(arg0)"}}}})
	s.awaitAttached(path, "logs[0]")
	_, err = stdin.Write([]byte("x"))
	qt.Assert(t, qt.IsNil(err))
	var texts []string
	testneeds.Await(t, 10*time.Second, "a record", func() bool {
		texts = nil
		s.eachRecord(func(r plog.LogRecord) {
			text, _ := r.Attributes().Get("text")
			texts = append(texts, text.Str())
		})
		return len(texts) > 0
	})
	end()
	qt.Check(t, qt.DeepEquals(texts, []string{"foo"}))
}
