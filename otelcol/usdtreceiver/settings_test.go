// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"go.yaml.in/yaml/v3"

	"github.com/gousdt/gousdt/otelcol/usdtreceiver"
)

// settingsOf returns the names by which a configuration has its fields.
func settingsOf(config reflect.Type) map[string]bool {
	names := make(map[string]bool)
	for _, field := range reflect.VisibleFields(config) {
		if name, _, _ := strings.Cut(field.Tag.Get("mapstructure"), ","); name != "" {
			names[name] = true
		}
	}
	return names
}

var (
	tableRow = regexp.MustCompile("(?m)^\\| (`[a-z_]+`(?:, `[a-z_]+`)*) \\|")
	quoted   = regexp.MustCompile("`([a-z_]+)`")
)

// README.md has a row for each setting, and none for another.
func TestReadmeHasEverySetting(t *testing.T) {
	text, err := os.ReadFile("README.md")
	qt.Assert(t, qt.IsNil(err))
	_, settings, ok := strings.Cut(string(text), "\n## Settings\n")
	qt.Assert(t, qt.IsTrue(ok))
	settings, _, _ = strings.Cut(settings, "\n## ")
	sections := strings.Split("all\n"+settings, "\n### ")
	kinds := map[string]reflect.Type{
		"all":      reflect.TypeFor[usdtreceiver.Config](),
		"metrics":  reflect.TypeFor[usdtreceiver.MetricConfig](),
		"spans":    reflect.TypeFor[usdtreceiver.SpanConfig](),
		"logs":     reflect.TypeFor[usdtreceiver.LogConfig](),
		"profiles": reflect.TypeFor[usdtreceiver.ProfileConfig](),
	}
	for _, section := range sections {
		name, rows, _ := strings.Cut(section, "\n")
		kind, ok := kinds[name]
		qt.Assert(t, qt.IsTrue(ok), qt.Commentf("section %q", name))
		delete(kinds, name)
		described := make(map[string]bool)
		for _, row := range tableRow.FindAllStringSubmatch(rows, -1) {
			for _, setting := range quoted.FindAllStringSubmatch(row[1], -1) {
				qt.Check(t, qt.IsFalse(described[setting[1]]),
					qt.Commentf("%s has %s twice", name, setting[1]))
				described[setting[1]] = true
			}
		}
		qt.Check(t, qt.DeepEquals(described, settingsOf(kind)), qt.Commentf("section %s", name))
	}
	qt.Check(t, qt.HasLen(kinds, 0))
}

// README.md says the defaults.
func TestReadmeHasTheDefaults(t *testing.T) {
	text, err := os.ReadFile("README.md")
	qt.Assert(t, qt.IsNil(err))
	defaults := reflect.ValueOf(usdtreceiver.NewFactory().CreateDefaultConfig()).Elem()
	for _, field := range reflect.VisibleFields(defaults.Type()) {
		name, _, _ := strings.Cut(field.Tag.Get("mapstructure"), ",")
		row := regexp.MustCompile("(?m)^\\| `" + name + "` \\| ([^ |]+) \\|").FindSubmatch(text)
		if name == "" || row == nil {
			continue // a list, or several in a row
		}
		var read usdtreceiver.Config
		settings := map[string]any{}
		qt.Assert(t, qt.IsNil(yaml.Unmarshal([]byte(name+": "+string(row[1])), &settings)))
		read = *configured(t, settings)
		qt.Check(t, qt.DeepEquals(reflect.ValueOf(read).FieldByIndex(field.Index).Interface(),
			defaults.FieldByIndex(field.Index).Interface()), qt.Commentf("%s", name))
	}
}

// metadataFile has what of mdatagen's format metadata.yaml uses. Other fields
// are refused, as mdatagen does.
type metadataFile struct {
	Type        string
	DisplayName string `yaml:"display_name"`
	Description string
	Status      struct {
		Class                string
		Stability            map[string][]string
		UnsupportedPlatforms []string `yaml:"unsupported_platforms"`
	}
	SemanticConventions string                       `yaml:"sem_conv_version"`
	ResourceAttributes  map[string]metadataAttribute `yaml:"resource_attributes"`
	Attributes          map[string]metadataAttribute
	Telemetry           struct {
		Metrics map[string]metadataMetric
	}
}

type metadataAttribute struct {
	Description string
	Type        string
	Enum        []string
	Enabled     bool
}

type metadataMetric struct {
	Enabled           bool
	Stability         string
	Description, Unit string
	Gauge, Sum        *metadataValue
	Attributes        []string
}

// metadataKind is what a metric is.
type metadataKind struct {
	name, value string
	monotonic   bool
}

func (m metadataMetric) kind() metadataKind {
	if m.Gauge != nil {
		return metadataKind{"gauge", m.Gauge.ValueType, m.Gauge.Monotonic}
	}
	return metadataKind{"sum", m.Sum.ValueType, m.Sum.Monotonic}
}

type metadataValue struct {
	ValueType string `yaml:"value_type"`
	Monotonic bool
	Async     bool
}

func readMetadata(t *testing.T) *metadataFile {
	t.Helper()
	f, err := os.Open("metadata.yaml")
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	decoder := yaml.NewDecoder(f)
	decoder.KnownFields(true)
	m := new(metadataFile)
	qt.Assert(t, qt.IsNil(decoder.Decode(m)))
	return m
}

// mdatagen refuses attributes and metrics that are not in order.
func TestMetadataIsInOrder(t *testing.T) {
	text, err := os.ReadFile("metadata.yaml")
	qt.Assert(t, qt.IsNil(err))
	var m struct {
		Attributes yaml.Node
		Telemetry  struct {
			Metrics yaml.Node
		}
	}
	qt.Assert(t, qt.IsNil(yaml.Unmarshal(text, &m)))
	for _, mapping := range []yaml.Node{m.Attributes, m.Telemetry.Metrics} {
		var keys []string
		for i := 0; i < len(mapping.Content); i += 2 {
			keys = append(keys, mapping.Content[i].Value)
		}
		qt.Check(t, qt.Not(qt.HasLen(keys, 0)))
		qt.Check(t, qt.IsTrue(slices.IsSorted(keys)), qt.Commentf("%v", keys))
	}
}

// What mdatagen wants of metadata.yaml: attributes that are described and used,
// and a kind, a stability and a unit for each metric.
func TestMetadataIsComplete(t *testing.T) {
	m := readMetadata(t)
	qt.Check(t, qt.Equals(m.Status.Class, "receiver"))
	used := make(map[string]bool)
	for name, metric := range m.Telemetry.Metrics {
		comment := qt.Commentf("%s", name)
		qt.Check(t, qt.IsTrue(metric.Enabled), comment)
		qt.Check(t, qt.Equals(metric.Stability, "development"), comment)
		qt.Check(t, qt.IsTrue((metric.Gauge == nil) != (metric.Sum == nil)), comment)
		qt.Check(t, qt.Matches(metric.Description, `[A-Z].*\.`), comment)
		qt.Check(t, qt.Not(qt.Equals(metric.Unit, "")), comment)
		for _, attribute := range metric.Attributes {
			used[attribute] = true
		}
	}
	for name, attribute := range m.Attributes {
		qt.Check(t, qt.Equals(attribute.Type, "string"), qt.Commentf("%s", name))
		qt.Check(t, qt.Matches(attribute.Description, `[A-Z].*\.`), qt.Commentf("%s", name))
	}
	qt.Check(t,
		qt.DeepEquals(slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(m.Attributes))))
}

// README.md names each of the receiver's own metrics, and each reason of what
// is lost.
func TestReadmeHasTheOwnMetrics(t *testing.T) {
	text, err := os.ReadFile("README.md")
	qt.Assert(t, qt.IsNil(err))
	m := readMetadata(t)
	for name := range m.Telemetry.Metrics {
		qt.Check(t, qt.StringContains(string(text), "`otelcol_"+name+"`"))
	}
	for _, reason := range m.Attributes["reason"].Enum {
		qt.Check(t, qt.StringContains(string(text), "`"+reason+"`"))
	}
	qt.Check(t, qt.Not(qt.HasLen(m.Attributes["reason"].Enum, 0)))
}
