// SPDX-License-Identifier: BSD-2-Clause

//go:build collector

// These tests run the Collector that make otelcol has built: make test-otelcol.

package usdtreceiver_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.yaml.in/yaml/v3"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// built is a Collector that runs.
type built struct {
	t   testing.TB
	cmd *exec.Cmd
}

// startBuilt starts the Collector and waits until it watches a file as often as
// it has sources.
func startBuilt(t testing.TB, config, file string, sources int, flags ...string) *built {
	t.Helper()
	testneeds.Root(t)
	path := filepath.Join(t.TempDir(), "config.yaml")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(config), 0o644)))
	cmd := exec.Command("../build/otelcol-usdt", append(flags, "--config", path)...)
	stderr, err := cmd.StderrPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	c := &built{t, cmd}
	t.Cleanup(func() { c.end(os.Kill) })
	lines := bufio.NewScanner(stderr)
	for found := 0; found < sources; {
		if !lines.Scan() {
			t.Fatal("the Collector has ended")
		}
		t.Log(lines.Text())
		if strings.Contains(lines.Text(), "attached") &&
			strings.Contains(lines.Text(), strconv.Quote(file)) {
			found++
		}
	}
	go io.Copy(io.Discard, stderr)
	return c
}

func (c *built) end(by os.Signal) {
	if c.cmd.ProcessState == nil {
		c.cmd.Process.Signal(by)
		c.cmd.Wait()
	}
}

// freePort returns a port that is not in use.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	qt.Assert(t, qt.IsNil(err))
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// startPrometheus has a Prometheus server scrape an exporter. The function that
// is returned evaluates an expression that has one value, NaN if there is none.
func startPrometheus(t testing.TB, exporter int) func(expression string) float64 {
	t.Helper()
	prometheus := testneeds.Tool(t, "prometheus", "prometheus")
	dir, server := t.TempDir(), freePort(t)
	config := filepath.Join(dir, "prometheus.yml")
	qt.Assert(t, qt.IsNil(os.WriteFile(config, fmt.Appendf(nil, `
global: { scrape_interval: 500ms }
scrape_configs:
  - job_name: usdt
    honor_labels: true
    static_configs: [{ targets: ["127.0.0.1:%d"] }]
`, exporter), 0o644)))
	scraper := exec.Command(prometheus, "--config.file="+config, "--storage.tsdb.path="+
		filepath.Join(dir, "data"),
		fmt.Sprintf("--web.listen-address=127.0.0.1:%d", server),
		"--enable-feature=native-histograms")
	qt.Assert(t, qt.IsNil(scraper.Start()))
	t.Cleanup(func() {
		scraper.Process.Kill()
		scraper.Wait()
	})
	return func(expression string) float64 {
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/api/v1/query?query=%s", server,
			url.QueryEscape(expression)))
		if err != nil {
			return math.NaN() // it does not listen yet
		}
		defer response.Body.Close()
		var answer struct {
			Data struct {
				Result []struct{ Value [2]any }
			}
		}
		if json.NewDecoder(response.Body).Decode(&answer) != nil || len(answer.Data.Result) == 0 {
			return math.NaN()
		}
		value, _ := strconv.ParseFloat(fmt.Sprint(answer.Data.Result[0].Value[1]), 64)
		return value
	}
}

// What Prometheus scrapes from a Collector is what pgbench says, and its
// quantiles are those of all single events.
func TestCollectorAndPrometheus(t *testing.T) {
	b := startBenchmark(t)
	testprog.LeakCheck(t)
	dir := t.TempDir()
	exporter := freePort(t)
	events := filepath.Join(dir, "events.json")
	c := startBuilt(t, fmt.Sprintf(`
receivers:
  usdt:
    collection_interval: 500ms
    metrics: [{ name: duration, pair: "postgresql:query", where: %q, per_doubling: 16 }]
    spans: [{ pair: "postgresql:query", where: %[1]q }]
processors:
  memory_limiter: { check_interval: 1s, limit_mib: 256 }
exporters:
  prometheus: { endpoint: "127.0.0.1:%d" }
  file: { path: %q }
service:
  telemetry: { metrics: { level: none } }
  pipelines:
    metrics: { receivers: [usdt], processors: [memory_limiter], exporters: [prometheus] }
    traces: { receivers: [usdt], processors: [memory_limiter], exporters: [file] }
`, ofTest, exporter, events), b.File, 2)

	query := startPrometheus(t, exporter)
	file := filepath.Join(dir, "script")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(script), 0o644)))
	n := transactionsOf(t, b.run("-n", "-M", "simple", "-c", "4", "-t", "200", "-f", file))
	testneeds.Await(t, 30*time.Second, "all transactions",
		func() bool { return query("sum(histogram_count(duration_nanoseconds))") >= float64(n) })
	qt.Check(t, qt.Equals(query("sum(histogram_count(duration_nanoseconds))"), float64(n)))
	quantiles := make(map[float64]float64)
	for _, q := range []float64{0.5, 0.95, 0.99} {
		quantiles[q] = query(fmt.Sprintf("histogram_quantile(%v, sum(duration_nanoseconds))", q))
	}
	c.end(os.Interrupt)

	var single []float64
	decoder := &ptrace.JSONUnmarshaler{}
	text, err := os.ReadFile(events)
	qt.Assert(t, qt.IsNil(err))
	for line := range bytes.Lines(text) {
		all, err := decoder.UnmarshalTraces(line)
		qt.Assert(t, qt.IsNil(err))
		for _, resource := range all.ResourceSpans().All() {
			for _, scope := range resource.ScopeSpans().All() {
				for _, span := range scope.Spans().All() {
					single = append(single, float64(span.EndTimestamp()-span.StartTimestamp()))
				}
			}
		}
	}
	qt.Assert(t, qt.HasLen(single, int(n)))
	slices.Sort(single)
	for q, got := range quantiles {
		exact := single[int(math.Ceil(q*float64(n)))-1]
		qt.Check(t, qt.IsTrue(math.Abs(got-exact) <= 0.05*exact),
			qt.Commentf("p%v is %v, not %v", 100*q, got, exact))
	}
}

// Profiles are what the Collector's own debug exporter prints.
func TestProfilesArePrinted(t *testing.T) {
	b := startBenchmark(t)
	printed := filepath.Join(t.TempDir(), "printed")
	startBuilt(t, fmt.Sprintf(`
receivers:
  usdt:
    collection_interval: 500ms
    profiles: [{ event: "postgresql:query__start", where: %q }]
exporters:
  debug: { verbosity: detailed, use_internal_logger: false, output_paths: [%q] }
service:
  telemetry: { metrics: { level: none } }
  pipelines: { profiles: { receivers: [usdt], exporters: [debug] } }
`, ofTest, printed), b.File, 1, "--feature-gates=service.profilesSupport")
	n := b.marked("-c", "2", "-t", "100")
	values := regexp.MustCompile(`Values: \[(\d+)\]`)
	testneeds.Await(t, 30*time.Second, "all hits", func() bool {
		text, err := os.ReadFile(printed)
		qt.Assert(t, qt.IsNil(err))
		var sum uint64
		for _, match := range values.FindAllSubmatch(text, -1) {
			value, err := strconv.ParseUint(string(match[1]), 10, 64)
			qt.Assert(t, qt.IsNil(err))
			sum += value
		}
		return sum == n
	})
	text, err := os.ReadFile(printed)
	qt.Assert(t, qt.IsNil(err))
	for _, words := range []string{"hits", b.File} {
		qt.Check(t, qt.StringContains(string(text), words))
	}
}

// Prometheus has no series of a process that has gone, soon after it has: all
// of its series, whatever their attributes.
func TestSeriesLeavePrometheus(t *testing.T) {
	b := startBenchmark(t)
	testprog.LeakCheck(t)
	exporter := freePort(t)
	const attributes = `attributes: { statement: "str(query, 17)" }`
	c := startBuilt(t, fmt.Sprintf(`
receivers:
  usdt:
    collection_interval: 200ms
    end_after: 1s
    metrics:
      - { name: duration, pair: "postgresql:query", where: %q, %s }
      - { name: starts, count: "postgresql:query__start", where: %[1]q, %[2]s }
exporters:
  prometheus: { endpoint: "127.0.0.1:%[3]d", metric_expiration: 1h }
service:
  telemetry: { metrics: { level: none } }
  pipelines:
    metrics: { receivers: [usdt], exporters: [prometheus] }
`, ofTest, attributes, exporter), b.File, 1)
	query := startPrometheus(t, exporter)
	const durations, starts = "count(duration_nanoseconds)", "count(starts_total)"

	file := filepath.Join(t.TempDir(), "script")
	qt.Assert(t,
		qt.IsNil(os.WriteFile(file, []byte(mark+" SELECT 1;\n"+mark+" VALUES (1);\n"), 0o644)))
	load := exec.Command(b.pgbench, "-h", b.SocketDir, "-U", "gousdt", "-n", "-M", "simple", "-c",
		"2", "-T", "3600",
		"--rate=20", "-f", file, "postgres")
	qt.Assert(t, qt.IsNil(load.Start()))
	end := sync.OnceFunc(func() {
		load.Process.Kill()
		load.Wait()
	})
	t.Cleanup(end)
	// two statements of each of two processes
	testneeds.Await(t, 30*time.Second, "series",
		func() bool { return query(durations) == 4 && query(starts) == 4 })
	end()
	testneeds.Await(t, 30*time.Second, "the end of series", func() bool {
		return math.IsNaN(query(durations)) && math.IsNaN(query(starts)) && query("up") == 1
	})
	c.end(os.Interrupt)
}

// What waits for a backend when the Collector is killed comes after its
// restart, and nothing stays attached.
func TestCollectorKilledDeliversItsQueue(t *testing.T) {
	b := startBenchmark(t)
	testprog.LeakCheck(t)
	dir := t.TempDir()
	backend := freePort(t)
	config := fmt.Sprintf(`
extensions:
  file_storage: { directory: %q }
receivers:
  usdt:
    collection_interval: 200ms
    temporality: delta
    metrics: [{ name: duration, pair: "postgresql:query", where: %q }]
exporters:
  file: { path: %q, flush_interval: 100ms }
  otlp_http:
    endpoint: "http://127.0.0.1:%d"
    sending_queue: { storage: file_storage }
    retry_on_failure: { initial_interval: 200ms, max_interval: 200ms }
service:
  extensions: [file_storage]
  telemetry: { metrics: { level: none } }
  pipelines:
    metrics: { receivers: [usdt], exporters: [otlp_http, file] }
`, dir, ofTest, filepath.Join(dir, "sent.json"), backend)
	c := startBuilt(t, config, b.File, 1)
	file := filepath.Join(dir, "script")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(script), 0o644)))
	n := transactionsOf(t, b.run("-n", "-M", "simple", "-c", "2", "-t", "50", "-f", file))
	testneeds.Await(t, 30*time.Second, "the queue", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "sent.json"))
		decoder, sum := &pmetric.JSONUnmarshaler{}, uint64(0)
		for line := range bytes.Lines(text) {
			if all, err := decoder.UnmarshalMetrics(line); err == nil {
				sum += countsOf(all)
			}
		}
		return sum == n
	})
	c.end(os.Kill)

	var received atomic.Uint64
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", backend))
	qt.Assert(t, qt.IsNil(err))
	receiver := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(r.Body)
		}
		text, _ := io.ReadAll(body)
		request := pmetricotlp.NewExportRequest()
		if request.UnmarshalProto(text) == nil {
			received.Add(countsOf(request.Metrics()))
		}
	}))
	receiver.Listener = listener
	receiver.Start()
	t.Cleanup(receiver.Close)
	c = startBuilt(t, config, b.File, 1)
	testneeds.Await(t, 30*time.Second, "what was in the queue",
		func() bool { return received.Load() >= n })
	c.end(os.Interrupt)
	qt.Check(t, qt.Equals(received.Load(), n))
}

func countsOf(all pmetric.Metrics) (sum uint64) {
	points([]pmetric.Metrics{all}, "duration", func(_ pmetric.ResourceMetrics, m pmetric.Metric) {
		for _, p := range m.ExponentialHistogram().DataPoints().All() {
			sum += p.Count()
		}
	})
	return sum
}

// promtool tests the alerts of the Prometheus Operator with what the receiver
// says of itself.
func TestAlerts(t *testing.T) {
	promtool := testneeds.Tool(t, "promtool", "prometheus")
	all := manifests(t, filepath.Join(deployments, "prometheus-operator", "rules.yaml"))
	rules, err := yaml.Marshal(all[0]["spec"])
	qt.Assert(t, qt.IsNil(err))
	tests, err := os.ReadFile("testdata/alerts.yaml")
	qt.Assert(t, qt.IsNil(err))
	dir := t.TempDir()
	for name, text := range map[string][]byte{"rules.yaml": rules, "alerts.yaml": tests} {
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, name), text, 0o644)))
	}
	out, err := exec.Command(promtool, "test", "rules", filepath.Join(dir, "alerts.yaml")).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
}

// What is deployed is a configuration that the Collector takes.
func TestDeployedConfigurations(t *testing.T) {
	values := manifests(t, filepath.Join(deployments, "helm", "values.yaml"))
	config := values[0]["config"].(map[string]any)
	receivers := config["receivers"].(map[string]any)
	for name, settings := range receivers {
		if settings == nil {
			delete(receivers, name) // of the chart's own, taken out
		}
	}
	receivers["otlp"] = map[string]any{"protocols": map[string]any{"grpc": nil}} // the chart's
	helm, err := yaml.Marshal(config)
	qt.Assert(t, qt.IsNil(err))
	all := manifests(t, filepath.Join(deployments, "kubernetes", "configmap.yaml"))
	for name, text := range map[string]string{
		"kubernetes": all[0]["data"].(map[string]any)["config.yaml"].(string), "helm": string(helm),
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(text), 0o644)))
			cmd := exec.Command("../build/otelcol-usdt", "validate", "--config", file)
			cmd.Env = append(os.Environ(), "POD_IP=127.0.0.1", "NODE_NAME=node",
				"OTLP_ENDPOINT=localhost:4317")
			out, err := cmd.CombinedOutput()
			qt.Check(t, qt.IsNil(err), qt.Commentf("%s", out))
		})
	}
}

// A configuration is written out with what its presets have, and that is a
// configuration too.
func TestPresetsAreWrittenOut(t *testing.T) {
	const using = `
receivers: { usdt: { preset: postgresql } }
exporters: { file: { path: /dev/null } }
service: { pipelines: { metrics: { receivers: [usdt], exporters: [file] } } }
`
	config := func(text string) string {
		file := filepath.Join(t.TempDir(), "config.yaml")
		qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(text), 0o644)))
		return file
	}
	out, err := exec.Command("../build/otelcol-usdt", "print-config", "--config",
		config(using)).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	qt.Check(t, qt.StringContains(string(out), "name: db.client.operation.duration"))
	out, err = exec.Command("../build/otelcol-usdt", "validate", "--config",
		config(string(out))).CombinedOutput()
	qt.Check(t, qt.IsNil(err), qt.Commentf("%s", out))
}
