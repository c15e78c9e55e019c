// SPDX-License-Identifier: BSD-2-Clause

//go:build collector

package usdtreceiver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// exemplarTrace is the label of an exemplar with an ID that begins as those of
// the load do, in a message of Prometheus's protocol.
var exemplarTrace = regexp.MustCompile(`(?s)trace_id.{1,4}0{16}[0-9]{16}`)

// The example without a container runtime: its Collector, Prometheus and load,
// by its own files. Each query of the dashboard has an answer, and exemplars
// have the traces of the load.
func TestComposeExampleRuns(t *testing.T) {
	prometheus := testneeds.Tool(t, "prometheus", "prometheus")
	b := startBenchmark(t)
	testprog.LeakCheck(t)
	dir := t.TempDir()
	exporter, server := freePort(t), freePort(t)
	replace := strings.NewReplacer(
		"0.0.0.0:9464", fmt.Sprintf("127.0.0.1:%d", exporter), "collector:9464",
		fmt.Sprintf("127.0.0.1:%d", exporter),
		"scrape_interval: 5s", "scrape_interval: 500ms", "collection_interval: 5s",
		"collection_interval: 500ms",
	)
	c := startBuilt(t, replace.Replace(composeText(t, "collector.yaml")), b.File, 2)
	config := filepath.Join(dir, "prometheus.yml")
	qt.Assert(t,
		qt.IsNil(os.WriteFile(config,
			[]byte(replace.Replace(composeText(t, "prometheus.yml"))), 0o644)))
	scraper := exec.Command(prometheus, "--config.file="+config, "--storage.tsdb.path="+
		filepath.Join(dir, "data"),
		fmt.Sprintf("--web.listen-address=127.0.0.1:%d", server),
		"--enable-feature=native-histograms,exemplar-storage")
	qt.Assert(t, qt.IsNil(scraper.Start()))
	t.Cleanup(func() {
		scraper.Process.Kill()
		scraper.Wait()
	})
	ask := func(query string, answer any) bool {
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/api/v1/query?query=%s", server,
			url.QueryEscape(query)))
		if err != nil {
			return false // it does not listen yet
		}
		defer response.Body.Close()
		return json.NewDecoder(response.Body).Decode(answer) == nil
	}

	file := filepath.Join(dir, "load.sql")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(composeText(t, "postgresql/load.sql")), 0o644)))
	load := func() { b.run("-n", "-M", "simple", "-c", "2", "-t", "50", "-f", file) }
	for _, query := range dashboardQueries(t) {
		testneeds.Await(t, 30*time.Second, query, func() bool {
			load() // rates need more than one scrape
			var answer struct{ Data struct{ Result []any } }
			return ask(query, &answer) && len(answer.Data.Result) > 0
		})
	}
	// Debian's Prometheus reads no exemplars of native histograms, so this asks
	// as a newer one does.
	testneeds.Await(t, 30*time.Second, "exemplars", func() bool {
		load()
		request, err := http.NewRequest(http.MethodGet,
			fmt.Sprintf("http://127.0.0.1:%d/metrics", exporter), nil)
		qt.Assert(t, qt.IsNil(err))
		request.Header.Set("Accept",
			"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
		response, err := http.DefaultClient.Do(request)
		qt.Assert(t, qt.IsNil(err))
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		qt.Assert(t, qt.IsNil(err))
		// As the load writes it.
		return exemplarTrace.Match(body)
	})
	c.end(os.Interrupt)
}
