// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt/proc"
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

// A mistake in converting one event costs that event.
func TestMistakesEndNothing(t *testing.T) {
	core, logged := observer.New(zapcore.ErrorLevel)
	s := &source{name: "spans[0]", receiver: &usdtReceiver{logger: zap.New(core)}}
	var texts []string
	done := 0
	for range 2 {
		s.convert(func() { _ = texts[1] })
		s.convert(func() { done++ })
	}
	qt.Check(t, qt.Equals(done, 2))
	qt.Check(t, qt.Equals(s.unconverted.Load(), 2))
	qt.Check(t, qt.Equals(logged.FilterField(zap.String("source", "spans[0]")).Len(), 2))
}

// What processes call themselves is bytes; what leaves is UTF-8.
func TestResourcesAreValidText(t *testing.T) {
	const bad = "lxc.payload.\xff"
	for _, r := range []*resource{
		{path: "/" + bad, container: proc.Container{ID: "\xff", Runtime: "\xff",
			PodUID: "\xff"}},
		{process: &process{Process: proc.Process{Command: "\xff"}, executable: "/\xff"},
			service: map[string]string{attributeServiceName: "\xff"}},
	} {
		all := pcommon.NewResource()
		(&usdtReceiver{config: defaultConfig()}).fillResource(all, r)
		for name, value := range all.Attributes().All() {
			qt.Check(t, qt.IsTrue(utf8.ValidString(value.AsString())), qt.Commentf("%s", name))
		}
	}
	b := newProfilesBuilder(&source{receiver: &usdtReceiver{}})
	b.location(stack.Frame{File: "\xff", BuildID: "\xff", Function: "\xff"}, false)
	for _, text := range b.tables.StringTable().All() {
		qt.Check(t, qt.IsTrue(utf8.ValidString(text)))
	}
	for _, a := range b.tables.AttributeTable().All() {
		qt.Check(t, qt.IsTrue(utf8.ValidString(a.Value().AsString())))
	}
}

func TestConstantAttributes(t *testing.T) {
	for text, want := range map[string]string{
		`'postgresql'`: "postgresql", `"it's"`: "it's", `''`: "",
	} {
		parsed, err := parseTerm(text, true)
		qt.Assert(t, qt.IsNil(err))
		to := pcommon.NewMap()
		parsed.put(to, "db.system.name", &trace.Event{})
		value, ok := to.Get("db.system.name")
		qt.Check(t, qt.IsTrue(ok))
		qt.Check(t, qt.Equals(value.Str(), want))
	}
	for _, text := range []string{`'x`, `x'`, `'x' y`, `'it's'`} {
		_, err := parseTerm(text, true)
		qt.Check(t, qt.IsNotNil(err), qt.Commentf("%s", text))
	}
}

// A backend that answers nothing does not keep the Collector from ending: what
// is being sent is given up, and counted.
func TestEndWhileConsumersBlock(t *testing.T) {
	config := defaultConfig()
	config.Logs = []LogConfig{{Event: "gousdt_test:three"}}
	config.Metrics = []MetricConfig{{Name: "hits", Count: "gousdt_test:three"}}
	blocked := make(chan struct{}, 1)
	block := func(ctx context.Context) error {
		select {
		case blocked <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return ctx.Err()
	}
	logs, err := consumer.NewLogs(func(ctx context.Context, _ plog.Logs) error { return block(ctx) })
	qt.Assert(t, qt.IsNil(err))
	metrics, err := consumer.NewMetrics(
		func(ctx context.Context, _ pmetric.Metrics) error { return block(ctx) })
	qt.Assert(t, qt.IsNil(err))
	r := receiving(t, config, consumers{logs: logs, metrics: metrics}, testprog.Start(t, "target-pie"))
	<-blocked
	ended, end := context.WithCancel(t.Context())
	end()
	qt.Check(t, qt.ErrorIs(r.shutdown(ended), context.Canceled))
	qt.Check(t, qt.IsTrue(r.sources[1].refused.Load() > 0))
}

// receiving starts a receiver, which collects metrics only when it is told to,
// and has a process hit the probe three once.
func receiving(t *testing.T, config *Config, to consumers, p *testprog.Process) *usdtReceiver {
	testneeds.Root(t)
	config.CollectionInterval = time.Hour
	r := newReceiver(receivertest.NewNopSettings(metadata.Type), config)
	r.next = to
	qt.Assert(t, qt.IsNil(r.start(t.Context(), componenttest.NewNopHost())))
	t.Cleanup(func() { qt.Check(t, qt.IsNil(r.close())) })
	testneeds.Await(t, 20*time.Second, "attached", func() bool {
		_ = r.watch.Sync(t.Context(), p.PID)
		return !slices.ContainsFunc(r.sources,
			func(s *source) bool { return s.itemSites(s.items[0]) == 0 })
	})
	p.Fire("three", 1)
	return r
}

// What was counted of a process that has gone while the backend refused all is
// sent once it does not.
func TestSeriesEndWhenTheyWereTaken(t *testing.T) {
	p := testprog.Start(t, "target-pie")
	config := defaultConfig()
	config.EndAfter = 1
	config.Resource = ByProcess
	config.Metrics = []MetricConfig{{Name: "hits", Count: "gousdt_test:three",
		Where: fmt.Sprint("pid == ", p.PID)}}
	refused := errors.New("not now")
	var sent []pmetric.NumberDataPoint
	to, err := consumer.NewMetrics(func(_ context.Context, m pmetric.Metrics) error {
		points := m.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints()
		sent = append(sent, points.At(0))
		return refused
	})
	qt.Assert(t, qt.IsNil(err))
	r := receiving(t, config, consumers{metrics: to}, p)
	qt.Check(t, qt.ErrorIs(r.collectMetrics(t.Context()), refused))
	p.Stop()
	testneeds.Await(t, 20*time.Second, "the process has gone", func() bool {
		_ = r.watch.Sync(t.Context(), p.PID)
		return r.processes.count() == 0
	})
	qt.Check(t, qt.ErrorIs(r.collectMetrics(t.Context()), refused))
	refused = nil
	for range 3 { // the third has nothing to send
		qt.Check(t, qt.IsNil(r.collectMetrics(t.Context())))
	}
	qt.Assert(t, qt.HasLen(sent, 4))
	for i, p := range sent {
		qt.Check(t, qt.Equals(p.Flags().NoRecordedValue(), i == 3))
	}
	qt.Check(t, qt.Equals(sent[2].IntValue(), 1))
}

// A record stands for hits of its own process and site, also for those that
// only the receiver has left out.
func TestLimitedHitsAreOfOneProcessAndSite(t *testing.T) {
	l, site := limiter{limit: 1}, &trace.Site{}
	for _, hit := range []struct {
		second, pid  int
		weight, want uint64 // 0 for an event that is left out
	}{
		{1, 7, 10, 10}, {1, 7, 1000, 0}, {1, 8, 1, 0}, {2, 8, 2, 3}, {3, 8, 1, 1}, {4, 7, 1, 1001},
	} {
		hits, ok := l.let(&trace.Event{Monotonic: time.Duration(hit.second) * time.Second,
			PID: hit.pid, Site: site, Weight: hit.weight})
		qt.Check(t, qt.Equals(hits, hit.want))
		qt.Check(t, qt.Equals(ok, hit.want > 0))
	}
}
