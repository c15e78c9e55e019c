// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"fmt"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/otelcol/usdtreceiver"
)

// What the receiver says of itself is what metadata.yaml describes, and true.
func TestOwnMetrics(t *testing.T) {
	b := startPostgres(t)
	settings := aMetric(map[string]any{"count": "postgresql:query__start"})
	settings["measure_cost"] = true
	settings["spans"] = []any{map[string]any{"pair": "postgresql:query"}}
	s, _ := started(t, settings)
	s.awaitAttached(b.File, "metrics", "spans[0]")
	b.Query("SELECT 1")

	described := readMetadata(t)
	got := make(map[string]metricdata.Metrics)
	var all metricdata.ResourceMetrics
	qt.Assert(t, qt.IsNil(s.own.Collect(t.Context(), &all)))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if name, ok := strings.CutPrefix(m.Name, "otelcol_receiver_usdt"); ok {
				name = "receiver_usdt" + name
				got[name] = m
				qt.Check(t, qt.Equals(m.Unit, described.Telemetry.Metrics[name].Unit))
				wanted := described.Telemetry.Metrics[name]
				qt.Check(t, qt.Equals(m.Description, wanted.Description+" [Development]"))
				kind, attributes := kindOf(m.Data)
				qt.Check(t, qt.Equals(kind, wanted.kind()), qt.Commentf("%s", name))
				for _, set := range attributes {
					var keys []string
					for _, a := range set.ToSlice() {
						keys = append(keys, string(a.Key))
						if enum := described.Attributes[string(a.Key)].Enum; len(enum) > 0 {
							qt.Check(t, qt.SliceContains(enum, a.Value.AsString()))
						}
					}
					qt.Check(t, qt.ContentEquals(keys, wanted.Attributes), qt.Commentf("%s", name))
				}
			}
		}
	}
	qt.Check(t, qt.DeepEquals(slices.Sorted(maps.Keys(got)),
		slices.Sorted(maps.Keys(described.Telemetry.Metrics))))
	for _, p := range got["receiver_usdt_sites"].Data.(metricdata.Gauge[int64]).DataPoints {
		item, _ := p.Attributes.Value("item")
		// Another PostgreSQL may be watched, too.
		qt.Check(t,
			qt.IsTrue(p.Value >= map[string]int64{"metrics[0]": 1, "spans[0]": 2}[item.AsString()]))
	}
	qt.Check(t,
		qt.IsTrue(got["receiver_usdt_processes"].Data.(metricdata.Gauge[int64]).DataPoints[0].Value > 0))
	for _, p := range got["receiver_usdt_program_time"].Data.(metricdata.Sum[float64]).DataPoints {
		qt.Check(t, qt.IsTrue(p.Value > 0))
	}
}

// ownSum returns a metric of the receiver's own, of a source.
func (s *sinks) ownSum(name, source string) (sum int64) {
	s.t.Helper()
	var all metricdata.ResourceMetrics
	qt.Assert(s.t, qt.IsNil(s.own.Collect(s.t.Context(), &all)))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != "otelcol_receiver_usdt_"+name {
				continue
			}
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				if of, _ := p.Attributes.Value("source"); of.AsString() == source {
					sum += p.Value
				}
			}
		}
	}
	return sum
}

// kindOf returns what a metric is, and the attributes of its points.
func kindOf(data metricdata.Aggregation) (kind metadataKind, all []attribute.Set) {
	switch d := data.(type) {
	case metricdata.Gauge[int64]:
		kind = metadataKind{"gauge", "int", false}
		for _, p := range d.DataPoints {
			all = append(all, p.Attributes)
		}
	case metricdata.Sum[int64]:
		kind = metadataKind{"sum", "int", d.IsMonotonic}
		for _, p := range d.DataPoints {
			all = append(all, p.Attributes)
		}
	case metricdata.Sum[float64]:
		kind = metadataKind{"sum", "double", d.IsMonotonic}
		for _, p := range d.DataPoints {
			all = append(all, p.Attributes)
		}
	}
	return kind, all
}

// A wrong name is said, and is not a service that is idle.
func TestItemsWithoutProbesAreSaid(t *testing.T) {
	s, _ := started(t, map[string]any{
		"spans": []any{map[string]any{"pair": "gousdt_no_such:start..done"}},
	})
	testneeds.Await(t, 20*time.Second, "a word on spans[0]", func() bool {
		return s.logged.FilterMessageSnippet("no process has a probe of this").
			FilterField(zap.String("item", "spans[0]")).Len() == 1
	})
}

// Calls whose starts and ends do not belong together are reported, and that
// those from before are missing.
func TestDoubtsAboutCallsAreSaid(t *testing.T) {
	s, _ := started(t, map[string]any{"scan_interval": "1s",
		"spans": []any{map[string]any{"pair": "gousdt_calls:loop"}}})
	program := exec.Command(testprog.Path(t, "calls"))
	stdin, err := program.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(program.Start()))
	defer program.Wait()
	defer stdin.Close()
	s.awaitAttached(program.Path, "spans[0]")
	fmt.Fprintln(stdin, "interleaved")
	for _, message := range []string{"calls that had begun before the receiver are not measured",
		"times of calls may be wrong or missing: gousdt_calls:loop: start and end differ in arg0 in 40 of 40"} {
		testneeds.Await(t, 20*time.Second, message,
			func() bool { return s.logged.FilterMessageSnippet(message).Len() == 1 })
	}
}

// Without CAP_SYS_PTRACE an alert has what it needs; with it, too.
func TestMissingCapabilitiesAreSaid(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	var before, sets [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	qt.Assert(t, qt.IsNil(unix.Capget(&header, &before[0])))
	sets = before
	sets[0].Effective &^= 1 << unix.CAP_SYS_PTRACE
	qt.Assert(t, qt.IsNil(unix.Capset(&header, &sets[0])))
	defer unix.Capset(&header, &before[0])
	missing := usdtreceiver.MissingCapabilities(t)
	qt.Check(t, qt.IsTrue(missing["CAP_SYS_PTRACE"]))
	qt.Check(t, qt.IsFalse(missing["CAP_DAC_READ_SEARCH"]))
}
