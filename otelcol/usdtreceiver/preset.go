// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"cmp"
	"embed"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"
)

// presets has a configuration for each software that has one.
//
//go:embed presets
var presets embed.FS

func presetNames() (names []string) {
	entries, _ := presets.ReadDir("presets")
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), ".yaml"))
	}
	return names
}

// plainConfig is a Config without Unmarshal.
type plainConfig Config

// Unmarshal reads a configuration, and adds the entries of its presets. An
// entry of the configuration replaces the preset's entry of the same name or,
// without a name, for the same probe.
func (c *Config) Unmarshal(from *confmap.Conf) error {
	if err := from.Unmarshal((*plainConfig)(c)); err != nil {
		return err
	}
	for _, name := range c.Preset {
		text, err := presets.ReadFile("presets/" + name + ".yaml")
		if err != nil {
			return fmt.Errorf("preset: %q is none of %s", name, strings.Join(presetNames(), ", "))
		}
		var settings map[string]any
		if err := yaml.Unmarshal(text, &settings); err != nil {
			return fmt.Errorf("preset %s: %w", name, err)
		}
		var p plainConfig
		if err := confmap.NewFromStringMap(settings).Unmarshal(&p); err != nil {
			return fmt.Errorf("preset %s: %w", name, err)
		}
		c.Metrics = withPreset(c.Metrics, p.Metrics, func(m MetricConfig) string { return m.Name })
		c.Spans = withPreset(c.Spans, p.Spans,
			func(s SpanConfig) string { return cmp.Or(s.Name, s.Pair) })
		c.Logs = withPreset(c.Logs, p.Logs, func(l LogConfig) string { return l.Event })
	}
	return nil
}

// withPreset adds the entries of a preset whose names a list lacks.
func withPreset[T any](list, preset []T, name func(T) string) []T {
	for _, p := range preset {
		if !slices.ContainsFunc(list, func(own T) bool { return name(own) == name(p) }) {
			list = append(list, p)
		}
	}
	return list
}
