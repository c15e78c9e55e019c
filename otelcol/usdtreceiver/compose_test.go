// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.yaml.in/yaml/v3"
)

const composeExample = "../../examples/otel"

// composeFile is what of the Compose specification the example uses. A name
// that is written wrong is no field of it.
type composeFile struct {
	Name     string
	Services map[string]struct {
		Image       string
		Build       struct{ Context, Dockerfile string }
		Command     []string
		Entrypoint  []string
		Environment map[string]string
		Healthcheck struct {
			Test     []string
			Interval string
			Retries  int
		}
		DependsOn  yaml.Node `yaml:"depends_on"`
		PID        string    `yaml:"pid"`
		Cgroup     string
		Privileged bool
		Volumes    []string
		Ports      []string
	}
}

// All that the services are made of is there.
func TestComposeFile(t *testing.T) {
	f, err := os.Open(filepath.Join(composeExample, "compose.yaml"))
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	decoder := yaml.NewDecoder(f)
	decoder.KnownFields(true)
	var file composeFile
	qt.Assert(t, qt.IsNil(decoder.Decode(&file)))
	exists := func(path string) {
		t.Helper()
		_, err := os.Stat(filepath.Join(composeExample, path))
		qt.Check(t, qt.IsNil(err))
	}
	for name, s := range file.Services {
		qt.Check(t, qt.Equals(s.Image == "", s.Build.Context != ""),
			qt.Commentf("%s: an image, or how to build one", name))
		if s.Build.Context != "" {
			exists(filepath.Join(s.Build.Context, s.Build.Dockerfile))
		}
		for _, volume := range s.Volumes {
			if from, _, _ := strings.Cut(volume, ":"); strings.HasPrefix(from, ".") {
				exists(from)
			}
		}
		for _, port := range s.Ports {
			qt.Check(t, qt.IsTrue(strings.HasPrefix(port, "127.0.0.1:")),
				qt.Commentf("%s: others reach %s", name, port))
		}
		depends := make(map[string]bool)
		switch s.DependsOn.Kind {
		case yaml.SequenceNode:
			for _, n := range s.DependsOn.Content {
				depends[n.Value] = true
			}
		case yaml.MappingNode:
			depends[s.DependsOn.Content[0].Value] = true
		}
		for other := range depends {
			_, ok := file.Services[other]
			qt.Check(t, qt.IsTrue(ok), qt.Commentf("%s depends on %s", name, other))
		}
	}
	qt.Check(t, qt.StringContains(composeText(t, "prometheus.yml"), "collector:9464"))
	qt.Check(t, qt.StringContains(composeText(t, "collector.yaml"), "0.0.0.0:9464"))
	_, ok := file.Services["collector"]
	qt.Check(t, qt.IsTrue(ok))
}

func TestComposeCollector(t *testing.T) {
	all, err := confmaptest.LoadConf(filepath.Join(composeExample, "collector.yaml"))
	qt.Assert(t, qt.IsNil(err))
	receiver, err := all.Sub("receivers::usdt")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(confmap.Validate(configured(t, receiver.ToStringMap()))))
}

func composeText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(composeExample, name))
	qt.Assert(t, qt.IsNil(err))
	return string(text)
}

// dashboardQueries are the expressions of all panels.
func dashboardQueries(t *testing.T) (all []string) {
	t.Helper()
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	qt.Assert(t,
		qt.IsNil(json.Unmarshal([]byte(composeText(t, "grafana/postgresql.json")), &dashboard)))
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}

// The dashboard shows what the Collector is configured to measure.
func TestComposeDashboard(t *testing.T) {
	queries := dashboardQueries(t)
	qt.Assert(t, qt.Not(qt.HasLen(queries, 0)))
	for _, query := range queries {
		qt.Check(t,
			qt.Matches(query,
				`.*(db_client_operation_duration_seconds|postgresql_transaction_|postgresql_statement_open).*`))
	}
}
