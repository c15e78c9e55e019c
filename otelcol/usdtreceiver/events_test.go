// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"testing"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/gousdt/gousdt/trace"
)

// Processes and threads that have no number here are not those of number 0.
func TestProcessesWithoutNumbers(t *testing.T) {
	for _, test := range []struct {
		event trace.Event
		want  map[string]any
	}{
		{trace.Event{}, map[string]any{}},
		{trace.Event{PID: 5, TID: 6}, map[string]any{
			"p": int64(5), "t": int64(6), "process.pid": int64(5), "thread.id": int64(6),
		}},
	} {
		to := pcommon.NewMap()
		new(resource).fillThread(to, &test.event)
		term{source: "pid"}.put(to, "p", &test.event)
		term{source: "tid"}.put(to, "t", &test.event)
		qt.Check(t, qt.DeepEquals(to.AsRaw(), test.want))
	}
}
