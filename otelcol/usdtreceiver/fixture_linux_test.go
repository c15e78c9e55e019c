// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/collector/receiver/xreceiver"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/otelcol/usdtreceiver"
	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
)

// configured returns a configuration as the Collector reads it.
func configured(t testing.TB, settings map[string]any) *usdtreceiver.Config {
	t.Helper()
	c := usdtreceiver.NewFactory().CreateDefaultConfig().(*usdtreceiver.Config)
	qt.Assert(t, qt.IsNil(confmap.NewFromStringMap(settings).Unmarshal(c)))
	return c
}

// sinks are what a receiver sends to.
type sinks struct {
	metrics  consumertest.MetricsSink
	traces   consumertest.TracesSink
	logs     consumertest.LogsSink
	profiles consumertest.ProfilesSink

	t      testing.TB
	logged *observer.ObservedLogs
	own    *metric.ManualReader // of the receiver's own metrics
	refuse atomic.Bool          // metrics, for now
}

// Capabilities and ConsumeMetrics make it a consumer of metrics.
func (s *sinks) Capabilities() consumer.Capabilities { return s.metrics.Capabilities() }

func (s *sinks) ConsumeMetrics(ctx context.Context, m pmetric.Metrics) error {
	if s.refuse.Load() {
		return errors.New("not now")
	}
	return s.metrics.ConsumeMetrics(ctx, m)
}

// awaitAttached waits until the receiver says that it watches a file, each
// source that it is configured for.
func (s *sinks) awaitAttached(file string, sources ...string) {
	s.t.Helper()
	for _, source := range sources {
		testneeds.Await(s.t, 20*time.Second, file+" attached for "+source,
			func() bool { return s.hasAttached(file, source) })
	}
}

func (s *sinks) hasAttached(file, source string) bool {
	said := s.logged.FilterMessage("attached").FilterField(zap.String("file",
		file)).FilterField(zap.String("source", source))
	return said.Len() > 0
}

// started starts a receiver for all kinds of data that it is configured for.
// The function that is returned ends it, as the end of the test does.
func started(t testing.TB, settings map[string]any) (*sinks, func()) {
	t.Helper()
	return startedBy(t, usdtreceiver.NewFactoryThatParks(0), settings)
}

func startedBy(t testing.TB, factory receiver.Factory, settings map[string]any) (*sinks, func()) {
	t.Helper()
	testneeds.Root(t)
	testprog.LeakCheck(t)
	c := configured(t, settings)
	qt.Assert(t, qt.IsNil(confmap.Validate(c)))
	core, logged := observer.New(zapcore.InfoLevel)
	s := &sinks{t: t, logged: logged}
	receiverSettings := receivertest.NewNopSettings(metadata.Type)
	receiverSettings.Logger = zap.New(core)
	receiverSettings.ID = component.NewID(metadata.Type) // the same of one that is started again
	s.own = metric.NewManualReader()
	receiverSettings.MeterProvider = metric.NewMeterProvider(metric.WithReader(s.own))
	var all []interface {
		Start(context.Context, component.Host) error
		Shutdown(context.Context) error
	}
	if len(c.Metrics) > 0 {
		r, err := factory.CreateMetrics(t.Context(), receiverSettings, c, s)
		qt.Assert(t, qt.IsNil(err))
		all = append(all, r)
	}
	if len(c.Spans) > 0 {
		r, err := factory.CreateTraces(t.Context(), receiverSettings, c, &s.traces)
		qt.Assert(t, qt.IsNil(err))
		all = append(all, r)
	}
	if len(c.Logs) > 0 {
		r, err := factory.CreateLogs(t.Context(), receiverSettings, c, &s.logs)
		qt.Assert(t, qt.IsNil(err))
		all = append(all, r)
	}
	if len(c.Profiles) > 0 {
		r, err := factory.(xreceiver.Factory).CreateProfiles(t.Context(), receiverSettings, c,
			&s.profiles)
		qt.Assert(t, qt.IsNil(err))
		all = append(all, r)
	}
	for _, r := range all {
		qt.Assert(t, qt.IsNil(r.Start(t.Context(), componenttest.NewNopHost())))
	}
	end := func() {
		t.Helper()
		for _, r := range all {
			qt.Check(t, qt.IsNil(r.Shutdown(context.WithoutCancel(t.Context()))))
		}
	}
	t.Cleanup(end)
	return s, end
}

// benchmark is a PostgreSQL server with the tables of pgbench.
type benchmark struct {
	*testprog.Postgres
	t           testing.TB
	pgbench     string
	environment []string
}

func startPostgres(t testing.TB) *testprog.Postgres {
	t.Helper()
	testneeds.Root(t)
	return testprog.StartPostgres(t)
}

func startBenchmark(t testing.TB) *benchmark {
	t.Helper()
	p := startPostgres(t)
	b := &benchmark{Postgres: p, t: t, pgbench: filepath.Join(filepath.Dir(p.File), "pgbench")}
	b.run("-i", "-q", "-s", "1")
	return b
}

func (b *benchmark) run(arguments ...string) string {
	b.t.Helper()
	cmd := exec.Command(b.pgbench,
		append([]string{"-h", b.SocketDir, "-U", "gousdt", "postgres"}, arguments...)...)
	cmd.Env = append(os.Environ(), b.environment...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return string(out)
}

var processed = regexp.MustCompile(`transactions actually processed: (\d+)`)

// transactions runs pgbench and returns how many transactions it says there
// were.
func (b *benchmark) transactions(arguments ...string) uint64 {
	b.t.Helper()
	return transactionsOf(b.t, b.run(append([]string{"-n"}, arguments...)...))
}

// marked runs transactions of one statement each. The filter ofTest lets only
// these through.
func (b *benchmark) marked(arguments ...string) uint64 {
	b.t.Helper()
	script := filepath.Join(b.t.TempDir(), "marked.sql")
	qt.Assert(b.t, qt.IsNil(os.WriteFile(script,
		[]byte(mark+" UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = :client_id + 1;\n"),
		0o644)))
	return b.transactions(append(arguments, "-f", script)...)
}

func transactionsOf(t testing.TB, output string) uint64 {
	t.Helper()
	found := processed.FindStringSubmatch(output)
	if found == nil {
		t.Fatalf("pgbench does not say how many transactions there were:\n%s", output)
	}
	n, err := strconv.ParseUint(found[1], 10, 64)
	qt.Assert(t, qt.IsNil(err))
	return n
}

const (
	// childVariable has the test program be a receiver, and nothing else.
	childVariable = "GOUSDT_TEST_RECEIVER"
	// presetVariable names its preset, for measurements.
	presetVariable = "GOUSDT_TEST_PRESET"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(childVariable); file != "" {
		beReceiver(file)
		return
	}
	os.Exit(m.Run())
}

// beReceiver receives until it is killed. It writes a line when it watches the
// file.
func beReceiver(file string) {
	testing.Init()
	t := &testing.T{}
	settings := map[string]any{
		"metrics": []any{map[string]any{"name": "duration", "pair": "postgresql:query"}},
		"spans":   []any{map[string]any{"pair": "postgresql:query"}},
	}
	if preset := os.Getenv(presetVariable); preset != "" {
		settings = map[string]any{"preset": []any{preset}}
	}
	s, _ := startedBy(t, usdtreceiver.NewFactoryThatParks(0), settings)
	s.awaitAttached(file, "metrics", "spans[0]")
	fmt.Println("attached")
	select {}
}

// child is a process that is a receiver.
type child struct {
	t   testing.TB
	cmd *exec.Cmd
}

func startChild(t testing.TB, file string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+file)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	c := &child{t, cmd}
	t.Cleanup(c.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(line, "attached\n"))
	return c
}

func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		c.cmd.Process.Kill()
		c.cmd.Wait()
	}
}
