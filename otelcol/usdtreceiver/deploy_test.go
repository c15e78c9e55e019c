// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.yaml.in/yaml/v3"

	"github.com/gousdt/gousdt/otelcol/usdtreceiver"
)

const deployments = "../deploy"

// manifests returns the documents of a file.
func manifests(t *testing.T, file string) []map[string]any {
	t.Helper()
	f, err := os.Open(file)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	var all []map[string]any
	for decoder := yaml.NewDecoder(f); ; {
		var one map[string]any
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		qt.Assert(t, qt.IsNil(err))
		all = append(all, one)
	}
}

func TestManifests(t *testing.T) {
	read := 0
	err := filepath.WalkDir(deployments, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".yaml" ||
			filepath.Base(filepath.Dir(file)) == "helm" {
			return err
		}
		read++
		t.Run(file, func(t *testing.T) {
			all := manifests(t, file)
			qt.Check(t, qt.Not(qt.HasLen(all, 0)))
			for _, one := range all {
				qt.Check(t, qt.Not(qt.Equals(one["apiVersion"], nil)))
				qt.Check(t, qt.Not(qt.Equals(one["kind"], nil)))
			}
		})
		return nil
	})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Not(qt.Equals(read, 0)))
}

// The Collector's configuration in the ConfigMap is one that the receiver
// takes, with something to do in each pipeline that has it.
func TestConfigMap(t *testing.T) {
	all := manifests(t, filepath.Join(deployments, "kubernetes", "configmap.yaml"))
	qt.Assert(t, qt.HasLen(all, 1))
	data, _ := all[0]["data"].(map[string]any)
	text, _ := data["config.yaml"].(string)
	retrieved, err := confmap.NewRetrievedFromYAML([]byte(text))
	qt.Assert(t, qt.IsNil(err))
	conf, err := retrieved.AsConf()
	qt.Assert(t, qt.IsNil(err))

	checkCollector(t, conf, map[string]func(*usdtreceiver.Config) int{
		"metrics": func(c *usdtreceiver.Config) int { return len(c.Metrics) },
		"traces":  func(c *usdtreceiver.Config) int { return len(c.Spans) },
		"logs":    func(c *usdtreceiver.Config) int { return len(c.Logs) },
	})
}

// The chart adds receivers, such as otlp, to what its values say.
func TestHelmValues(t *testing.T) {
	values, err := confmaptest.LoadConf(filepath.Join(deployments, "helm", "values.yaml"))
	qt.Assert(t, qt.IsNil(err))
	conf, err := values.Sub("config")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(conf.Merge(confmap.NewFromStringMap(map[string]any{
		"receivers": map[string]any{"otlp": nil}}))))
	checkCollector(t, conf, map[string]func(*usdtreceiver.Config) int{
		"metrics": func(c *usdtreceiver.Config) int { return len(c.Metrics) },
		"traces":  func(c *usdtreceiver.Config) int { return len(c.Spans) },
	})
}

// checkCollector fails unless the receiver takes its part of a Collector's
// configuration, has something to do in each pipeline that has it, and what the
// pipelines name is configured.
func checkCollector(
	t *testing.T, conf *confmap.Conf, work map[string]func(*usdtreceiver.Config) int,
) {
	t.Helper()
	receiver, err := conf.Sub("receivers::usdt")
	qt.Assert(t, qt.IsNil(err))
	c := configured(t, receiver.ToStringMap())
	qt.Assert(t, qt.IsNil(confmap.Validate(c)))
	pipelines, _ := conf.Get("service::pipelines").(map[string]any)
	for name, pipeline := range pipelines {
		for kind, components := range pipeline.(map[string]any) {
			for _, component := range components.([]any) {
				qt.Check(t, qt.IsTrue(conf.IsSet(kind+"::"+component.(string))),
					qt.Commentf("%s: %s of %v", component, kind, name))
				if component == "usdt" {
					qt.Check(t, qt.Not(qt.Equals(work[name](c), 0)))
					delete(work, name)
				}
			}
		}
	}
	qt.Check(t, qt.HasLen(work, 0))
}
