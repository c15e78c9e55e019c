// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"

	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt/proc"
)

// Config is the configuration of a receiver. README.md describes the settings.
type Config struct {
	// ScanInterval is how often all processes are scanned for files with wanted
	// probes. A process whose start the kernel reports is scanned at once.
	ScanInterval time.Duration `mapstructure:"scan_interval"`
	// AttachAfter is the time after which a process is attached. 0 is at once.
	AttachAfter time.Duration `mapstructure:"attach_after"`
	// CollectionInterval is how often metrics and profiles are sent.
	CollectionInterval time.Duration `mapstructure:"collection_interval"`
	// Temporality is that of all metrics.
	Temporality Temporality `mapstructure:"temporality"`
	// Resource says what has a resource of its own: a process or a container.
	Resource ResourceKind `mapstructure:"resource"`
	// CardinalityLimit is how many series a metric can have on this machine.
	// The hits of further ones are in one with the attribute
	// otel.metric.overflow.
	CardinalityLimit int `mapstructure:"cardinality_limit"`
	// ResourceAttributes says which attributes resources have.
	ResourceAttributes metadata.ResourceAttributesConfig `mapstructure:"resource_attributes"`
	// EndAfter is how long the series of a process that has gone are still
	// sent.
	EndAfter time.Duration `mapstructure:"end_after"`
	// MeasureCost has the kernel measure how long the receiver's eBPF programs
	// run.
	MeasureCost bool `mapstructure:"measure_cost"`
	// Preset has names of software that the receiver has settings for:
	// "postgresql", "hotspot", "python".
	Preset []string `mapstructure:"preset,omitempty"`

	Metrics  []MetricConfig  `mapstructure:"metrics,omitempty"`
	Spans    []SpanConfig    `mapstructure:"spans,omitempty"`
	Logs     []LogConfig     `mapstructure:"logs,omitempty"`
	Profiles []ProfileConfig `mapstructure:"profiles,omitempty"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// Temporality says from when on the points of a metric count.
type Temporality string

// Values of [Config.Temporality].
const (
	Cumulative Temporality = "cumulative"
	Delta      Temporality = "delta"
)

// ResourceKind says what resources are.
type ResourceKind string

// Values of [Config.Resource].
const (
	ByProcess   ResourceKind = "process"
	ByContainer ResourceKind = "container"
)

// keys tell resources apart in an aggregation. They come before the keys for
// the attributes.
func (k ResourceKind) keys() []string {
	if k == ByContainer {
		return []string{"cgroup"}
	}
	return []string{"cgroup", "pid"}
}

const (
	// defaultCardinalityLimit is that of the metrics SDK specification.
	defaultCardinalityLimit = 2000

	// maxCardinalityLimit bounds the memory of a metric: a series with a
	// histogram takes up to some kilobytes.
	maxCardinalityLimit = 1 << 20
)

func defaultConfig() *Config {
	return &Config{
		ScanInterval:       time.Minute, // the kernel reports what starts
		CollectionInterval: time.Minute,
		Temporality:        Cumulative,
		Resource:           ByProcess,
		CardinalityLimit:   defaultCardinalityLimit,
		ResourceAttributes: metadata.DefaultResourceAttributesConfig(),
		EndAfter:           5 * time.Minute,
	}
}

// MetricConfig is a metric. Exactly one of Pair, Open, Count, Sum and Histogram
// says which probes it is about, and what it is.
type MetricConfig struct {
	Name        string `mapstructure:"name,omitempty"`
	Description string `mapstructure:"description,omitempty"`
	// Unit is that of the metric. Times are converted to it: ns, us, ms or s.
	Unit string `mapstructure:"unit,omitempty"`

	// Pair makes the metric a histogram of the time between two probes.
	Pair string `mapstructure:"pair,omitempty"`
	// MatchBy is Latency.By of package trace.
	MatchBy string `mapstructure:"match_by,omitempty"`
	// Open makes it a gauge of the calls between two probes that have started
	// and not ended, and have gone on for LongerThan.
	Open       string        `mapstructure:"open,omitempty"`
	LongerThan time.Duration `mapstructure:"longer_than,omitempty"`
	// Count makes it the number of hits of probes, Sum the sum of Value at
	// these, and Histogram a histogram of Value.
	Count     string `mapstructure:"count,omitempty"`
	Sum       string `mapstructure:"sum,omitempty"`
	Histogram string `mapstructure:"histogram,omitempty"`
	// Value is a number at each hit, as in "arg1". With Pair it replaces the
	// time, and can be one of the start, as in "start.arg1".
	Value string `mapstructure:"value,omitempty"`
	// Monotonic says that no Value is negative.
	Monotonic bool `mapstructure:"monotonic,omitempty"`
	// Buckets are the upper bounds of a histogram's buckets, in its unit. They
	// make it one with explicit bounds.
	Buckets []float64 `mapstructure:"buckets,omitempty"`
	// PerDoubling is how many buckets a histogram has from a number to its
	// double: 1, 2, 4, 8 or 16. 0 stands for 8.
	PerDoubling int `mapstructure:"per_doubling,omitempty"`

	// Where is a condition on the hits that count.
	Where string `mapstructure:"where,omitempty"`
	// Attributes are expressions, by the names of the attributes.
	Attributes map[string]string `mapstructure:"attributes,omitempty"`
}

// SpanConfig makes spans of the calls between two probes.
type SpanConfig struct {
	// Pair and MatchBy are as in [MetricConfig].
	Pair    string `mapstructure:"pair,omitempty"`
	MatchBy string `mapstructure:"match_by,omitempty"`
	// Name is that of the spans. Without it they have the name of the pair's
	// probes, without the part that tells start and end.
	Name string `mapstructure:"name,omitempty"`
	// Kind is that of the spans: "internal", "server" or "client".
	Kind string `mapstructure:"kind,omitempty"`
	// LongerThan is the shortest duration of a call that becomes a span.
	LongerThan time.Duration `mapstructure:"longer_than,omitempty"`
	// Where is a further condition on them, evaluated in the kernel.
	Where string `mapstructure:"where,omitempty"`
	// Attributes are terms, by the names of the attributes.
	Attributes map[string]string `mapstructure:"attributes,omitempty"`
	// Parent says where the context of the caller is.
	Parent *ParentConfig `mapstructure:"parent,omitempty"`
	// SampledOnly says that a call whose caller is not recorded becomes no
	// span. Nil is true.
	SampledOnly *bool `mapstructure:"sampled_only,omitempty"`
	// BufferSize is the room for spans in the kernel, in bytes.
	BufferSize int `mapstructure:"buffer_size,omitempty"`
}

// ParentConfig says where a text with the context of the caller is.
type ParentConfig struct {
	// From is a term that is a text.
	From string `mapstructure:"from,omitempty"`
	// Format is "sqlcommenter" or "traceparent".
	Format string `mapstructure:"format,omitempty"`
}

// LogConfig makes log records of hits.
type LogConfig struct {
	// Event is a pattern of probes.
	Event string `mapstructure:"event,omitempty"`
	// RateLimit is how many hits a second become records; 0 is all.
	RateLimit int `mapstructure:"rate_limit,omitempty"`
	// Where is a condition on them, evaluated in the kernel.
	Where string `mapstructure:"where,omitempty"`
	// Attributes are terms, by the names of the attributes. Without any, all
	// arguments are attributes.
	Attributes map[string]string `mapstructure:"attributes,omitempty"`
	// Parent says where the context of the span is that a record belongs to.
	Parent *ParentConfig `mapstructure:"parent,omitempty"`
	// BufferSize is the room for events in the kernel, in bytes.
	BufferSize int `mapstructure:"buffer_size,omitempty"`
}

// ProfileConfig makes profiles of the stacks at hits.
type ProfileConfig struct {
	// Event is a pattern of probes.
	Event string `mapstructure:"event,omitempty"`
	// Where is a condition on hits, evaluated in the kernel.
	Where string `mapstructure:"where,omitempty"`
}

// wrong returns an error with the text if is is true, else nil.
func wrong(is bool, format string, args ...any) error {
	if !is {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// Validate returns what is wrong with the configuration, except for its
// metrics, spans, logs and profiles: the Collector validates these on its own.
func (c *Config) Validate() error {
	names, twice := make(map[string]bool), ""
	for _, m := range c.Metrics {
		if names[m.Name] {
			twice = m.Name
		}
		names[m.Name] = true
	}
	return errors.Join(
		wrong(c.ScanInterval <= 0, "scan_interval: %v is not positive", c.ScanInterval),
		wrong(c.AttachAfter < 0, "attach_after: %v is negative", c.AttachAfter),
		wrong(c.CollectionInterval <= 0,
			"collection_interval: %v is not positive", c.CollectionInterval),
		wrong(c.EndAfter < 0, "end_after: %v is negative", c.EndAfter),
		wrong(c.Temporality != Cumulative && c.Temporality != Delta,
			"temporality: %q is neither %q nor %q", c.Temporality, Cumulative, Delta),
		wrong(c.Resource != ByProcess && c.Resource != ByContainer,
			"resource: %q is neither %q nor %q", c.Resource, ByProcess, ByContainer),
		wrong(c.CardinalityLimit < 1 || c.CardinalityLimit > maxCardinalityLimit,
			"cardinality_limit: %d is not from 1 to %d", c.CardinalityLimit, maxCardinalityLimit),
		wrong(len(c.Metrics)+len(c.Spans)+len(c.Logs)+len(c.Profiles) == 0,
			"there is nothing to do: set preset, metrics, spans, logs or profiles"),
		wrong(twice != "", "metrics: the name %q is used twice", twice),
	)
}

// metricName is what the metrics SDK specification allows.
var metricName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]{0,254}$`)

// Validate returns what is wrong with the metric, as far as it can be known
// without the kernel.
func (c *MetricConfig) Validate() error {
	if err := cmp.Or(
		wrong(c.Name == "", "it has no name"),
		wrong(!metricName.MatchString(c.Name), "name: %q does not begin with a letter, or has "+
			"more than letters, digits, _, ., / and -", c.Name),
	); err != nil {
		return err
	}
	_, err := c.parse(ByProcess, defaultCardinalityLimit)
	return err
}

// Validate returns what is wrong with the spans, as far as it can be known
// without the kernel.
func (c *SpanConfig) Validate() error {
	_, err := c.parse()
	return err
}

// Validate returns what is wrong with the log records, as far as it can be
// known without the kernel.
func (c *LogConfig) Validate() error {
	_, err := c.parse()
	return err
}

// Validate returns what is wrong with the profiles, as far as it can be known
// without the kernel.
func (c *ProfileConfig) Validate() error {
	_, err := c.parse()
	return err
}

// sessionOptions are what all sessions have in common. open sets the machine's
// containers.
func sessionOptions(where string, events *trace.EventOptions) *trace.SessionOptions {
	return &trace.SessionOptions{Filter: where, Definitions: trace.BuiltinDefinitions(),
		Containers: new(proc.Cgroups), Events: events}
}

// aggregating returns the options of a session that computes aggregations.
func aggregating(all ...trace.Aggregation) *trace.SessionOptions {
	opts := sessionOptions("", nil)
	for _, a := range all {
		opts.Aggregations = append(opts.Aggregations, &a)
	}
	return opts
}

// inField returns an error about a setting; nil for nil.
func inField(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// optionFields are the settings that options of package trace are set by.
var optionFields = map[string]string{
	"Filter": "where", "Where": "where", "Value": "value", "Pair": "pair", "By": "attributes",
	"Histogram": "per_doubling", "MaxKeys": "cardinality_limit",
	"RingSize": "buffer_size", "SamplePerSecond": "rate_limit", "Captures": "attributes",
	"Arg": "attributes", "Max": "attributes", "Length": "attributes",
}

// ofOption returns an error of package trace as one about a setting. attributes
// are the names of the attributes that the aggregation's keys are for.
func ofOption(err error, attributes ...string) error {
	var outer, option *tracing.OptionError
	for at := err; errors.As(at, &option); at = option.Err {
		if _, ok := option.Err.(*tracing.OptionError); ok {
			outer = option
		}
	}
	if option == nil {
		return err
	}
	name := optionFields[option.Field]
	switch {
	case option.Field == "By" && outer != nil && outer.Field != "Aggregations":
		name = "match_by"
	case option.Field == "By" && option.Index >= 0 && option.Index < len(attributes):
		name += "." + attributes[option.Index]
	}
	if name == "" {
		return err
	}
	return inField(name, option.Err)
}

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

// Unmarshal reads a configuration, and adds the metrics and spans of its
// presets. One of the configuration replaces the preset's one of the same name,
// and spans replace those of the same pair.
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
		c.Metrics = withPreset(c.Metrics, p.Metrics,
			func(a, b MetricConfig) bool { return a.Name == b.Name })
		c.Spans = withPreset(c.Spans, p.Spans, func(a, b SpanConfig) bool {
			return a.Pair == b.Pair || cmp.Or(a.Name, a.Pair) == cmp.Or(b.Name, b.Pair)
		})
	}
	return nil
}

// withPreset adds the entries of a preset that are the same as none of a list.
func withPreset[T any](list, preset []T, same func(a, b T) bool) []T {
	for _, p := range preset {
		if !slices.ContainsFunc(list, func(own T) bool { return same(own, p) }) {
			list = append(list, p)
		}
	}
	return list
}
