// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Config is the configuration of a receiver. README.md describes the settings.
type Config struct {
	// ScanInterval is how often all processes are scanned for files with wanted
	// probes. What the kernel reports to have started in between is scanned at
	// once.
	ScanInterval time.Duration `mapstructure:"scan_interval"`

	// CollectionInterval is how often metrics and profiles are sent.
	CollectionInterval time.Duration `mapstructure:"collection_interval"`

	// Temporality is of all metrics: "cumulative" or "delta".
	Temporality Temporality `mapstructure:"temporality"`

	// Resource is what is told apart by resources: "process" or "container".
	Resource ResourceKind `mapstructure:"resource"`

	// CardinalityLimit is how many series a metric can have, on this machine.
	// The hits of further ones are in the series with the attribute
	// otel.metric.overflow.
	CardinalityLimit int `mapstructure:"cardinality_limit"`

	// EndAfter is how long the series of a process that has gone are still
	// sent.
	EndAfter time.Duration `mapstructure:"end_after"`

	// MeasureCost has the kernel measure how long the receiver's eBPF programs
	// run.
	MeasureCost bool `mapstructure:"measure_cost"`

	Metrics  []MetricConfig  `mapstructure:"metrics"`
	Spans    []SpanConfig    `mapstructure:"spans"`
	Logs     []LogConfig     `mapstructure:"logs"`
	Profiles []ProfileConfig `mapstructure:"profiles"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// Temporality says from when on a point of a metric counts.
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

const (
	// defaultScanInterval is that long because the kernel reports what starts.
	defaultScanInterval       = time.Minute
	defaultCollectionInterval = time.Minute
	// defaultCardinalityLimit is that of the metrics SDK specification.
	defaultCardinalityLimit = 2000
	defaultEndAfter         = 5 * time.Minute

	// maxCardinalityLimit bounds the memory of a metric: a series with a
	// histogram takes up to some kilobytes.
	maxCardinalityLimit = 1 << 20
)

func defaultConfig() *Config {
	return &Config{
		ScanInterval:       defaultScanInterval,
		CollectionInterval: defaultCollectionInterval,
		Temporality:        Cumulative,
		Resource:           ByProcess,
		CardinalityLimit:   defaultCardinalityLimit,
		EndAfter:           defaultEndAfter,
	}
}

// Validate returns what is wrong with the configuration, as far as it can be
// known without the kernel.
func (c *Config) Validate() error {
	var all []error
	add := func(field string, err error) {
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", field, err))
		}
	}
	add("scan_interval", positive(c.ScanInterval))
	add("collection_interval", positive(c.CollectionInterval))
	if c.EndAfter < 0 {
		add("end_after", fmt.Errorf("%v is negative", c.EndAfter))
	}
	if c.Temporality != Cumulative && c.Temporality != Delta {
		add("temporality", fmt.Errorf("%q is neither %q nor %q", c.Temporality, Cumulative, Delta))
	}
	if c.Resource != ByProcess && c.Resource != ByContainer {
		add("resource", fmt.Errorf("%q is neither %q nor %q", c.Resource, ByProcess, ByContainer))
	}
	if c.CardinalityLimit < 1 || c.CardinalityLimit > maxCardinalityLimit {
		add("cardinality_limit",
			fmt.Errorf("%d is not from 1 to %d", c.CardinalityLimit, maxCardinalityLimit))
	}
	if len(c.Metrics)+len(c.Spans)+len(c.Logs)+len(c.Profiles) == 0 {
		all = append(all,
			errors.New("there is nothing to do: set metrics, spans, logs or profiles"))
	}
	var names []string
	for i := range c.Metrics {
		field := fmt.Sprintf("metrics[%d]", i)
		if slices.Contains(names, c.Metrics[i].Name) {
			add(field, fmt.Errorf("the name %q is used twice", c.Metrics[i].Name))
		}
		names = append(names, c.Metrics[i].Name)
		add(field, c.Metrics[i].validate())
	}
	for i := range c.Spans {
		add(fmt.Sprintf("spans[%d]", i), c.Spans[i].validate())
	}
	for i := range c.Logs {
		add(fmt.Sprintf("logs[%d]", i), c.Logs[i].validate())
	}
	for i := range c.Profiles {
		add(fmt.Sprintf("profiles[%d]", i), c.Profiles[i].validate())
	}
	return errors.Join(all...)
}

func positive(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%v is not positive", d)
	}
	return nil
}
