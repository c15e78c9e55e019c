// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"
)

const deployments = "../../deploy"

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
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".yaml" {
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

	receiver, err := conf.Sub("receivers::usdt")
	qt.Assert(t, qt.IsNil(err))
	c := configured(t, receiver.ToStringMap())
	qt.Assert(t, qt.IsNil(c.Validate()))
	qt.Check(t, qt.Not(qt.HasLen(c.Metrics, 0)))
	qt.Check(t, qt.Not(qt.HasLen(c.Spans, 0)))
	qt.Check(t, qt.Not(qt.HasLen(c.Logs, 0)))

	// What the pipelines name is configured.
	pipelines, _ := conf.Get("service::pipelines").(map[string]any)
	qt.Assert(t,
		qt.DeepEquals(slices.Sorted(maps.Keys(pipelines)), []string{"logs", "metrics", "traces"}))
	for name, pipeline := range pipelines {
		for kind, components := range pipeline.(map[string]any) {
			for _, component := range components.([]any) {
				qt.Check(t, qt.IsTrue(conf.IsSet(kind+"::"+component.(string))),
					qt.Commentf("%s: %s of %v", component, kind, name))
			}
		}
	}
}
