// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"os"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/collector/receiver/xreceiver"
	"go.yaml.in/yaml/v3"

	"github.com/gousdt/gousdt/otelcol/usdtreceiver"
	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
)

// What the Collector's tools read and what the code says is the same.
func TestMetadata(t *testing.T) {
	text, err := os.ReadFile("metadata.yaml")
	qt.Assert(t, qt.IsNil(err))
	var described struct {
		Type   string
		Status struct {
			Stability map[string][]string
		}
	}
	qt.Assert(t, qt.IsNil(yaml.Unmarshal(text, &described)))
	factory := usdtreceiver.NewFactory()
	qt.Check(t, qt.Equals(factory.Type(), metadata.Type))
	qt.Check(t, qt.Equals(described.Type, metadata.Type.String()))
	qt.Check(t, qt.DeepEquals(described.Status.Stability,
		map[string][]string{"development": {"metrics", "traces", "logs", "profiles"}}))
	for _, level := range []string{
		factory.MetricsStability().String(), factory.TracesStability().String(),
		factory.LogsStability().String(),
		factory.(xreceiver.Factory).ProfilesStability().String(),
	} {
		qt.Check(t, qt.Equals(level, "Development"))
	}
}

// A Collector whose start fails ends what was not started.
func TestShutdownBeforeStart(t *testing.T) {
	r, err := usdtreceiver.NewFactory().CreateMetrics(t.Context(),
		receivertest.NewNopSettings(metadata.Type),
		configured(t, aMetric(nil)), consumertest.NewNop())
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(r.Shutdown(t.Context())))
}

// What is shut down ends, once nothing like it has started for a while.
func TestStartAgain(t *testing.T) {
	for _, park := range []time.Duration{0, 50 * time.Millisecond} {
		factory := usdtreceiver.NewFactoryThatParks(park)
		for range 2 {
			_, end := startedBy(t, factory, aMetric(nil))
			end()
			end() // once for each kind of data
		}
	}
}

func TestPipelineWithoutConfiguration(t *testing.T) {
	settings, c := receivertest.NewNopSettings(metadata.Type), configured(t, aMetric(nil))
	_, err := usdtreceiver.NewFactory().CreateTraces(t.Context(), settings, c,
		consumertest.NewNop())
	qt.Check(t, qt.ErrorMatches(err, ".*has no spans"))
	_, err = usdtreceiver.NewFactory().CreateLogs(t.Context(), settings, c, consumertest.NewNop())
	qt.Check(t, qt.ErrorMatches(err, ".*has no logs"))
}
