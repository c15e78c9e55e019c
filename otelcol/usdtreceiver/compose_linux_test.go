// SPDX-License-Identifier: BSD-2-Clause

//go:build collector

package usdtreceiver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

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
		"0.0.0.0:9464", fmt.Sprintf("localhost:%d", exporter), "collector:9464", fmt.Sprintf("localhost:%d", exporter),
		"scrape_interval: 5s", "scrape_interval: 500ms", "collection_interval: 5s", "collection_interval: 500ms",
	)
	c := startBuilt(t, replace.Replace(composeText(t, "collector.yaml")), b.File, 2)
	config := filepath.Join(dir, "prometheus.yml")
	qt.Assert(t, qt.IsNil(os.WriteFile(config, []byte(replace.Replace(composeText(t, "prometheus.yml"))), 0o644)))
	scraper := exec.Command(prometheus, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		fmt.Sprintf("--web.listen-address=localhost:%d", server), "--enable-feature=native-histograms,exemplar-storage")
	qt.Assert(t, qt.IsNil(scraper.Start()))
	t.Cleanup(func() {
		scraper.Process.Kill()
		scraper.Wait()
	})
	ask := func(path, query string, answer any) bool {
		response, err := http.Get(fmt.Sprintf("http://localhost:%d/api/v1/%s?start=0&end=99999999999&query=%s", server, path, url.QueryEscape(query)))
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
		await(t, query, func() bool {
			load() // rates need more than one scrape
			var answer struct{ Data struct{ Result []any } }
			return ask("query", query, &answer) && len(answer.Data.Result) > 0
		})
	}
	await(t, "exemplars", func() bool {
		load()
		var answer struct {
			Data []struct {
				Exemplars []struct {
					Labels map[string]string
				}
			}
		}
		if !ask("query_exemplars", "postgresql_query_duration_nanoseconds", &answer) {
			return false
		}
		for _, series := range answer.Data {
			for _, e := range series.Exemplars {
				// As the load writes it, with the parent's ID behind.
				trace, ok := strings.CutPrefix(e.Labels["trace_id"], "0000000000000000")
				qt.Check(t, qt.IsTrue(ok && len(trace) == 16 && len(e.Labels["span_id"]) == 16), qt.Commentf("%v", e.Labels))
				return true
			}
		}
		return false
	})
	c.end(os.Interrupt)
}
