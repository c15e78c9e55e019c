// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import "time"

// SpanConfig makes spans of the calls between two probes.
type SpanConfig struct {
	// Pair are the probes.
	Pair        string `mapstructure:"pair"`
	MatchBy     string `mapstructure:"match_by"`
	MatchDoneBy string `mapstructure:"match_done_by"`
	// Name is that of the spans. Without it they are called as the pair's
	// probes are, without what tells start and end.
	Name string `mapstructure:"name"`
	// LongerThan is how long calls take that become spans.
	LongerThan time.Duration `mapstructure:"longer_than"`
	// Where is a further condition on them, evaluated in the kernel.
	Where string `mapstructure:"where"`
	// Attributes are terms, by the names of the attributes.
	Attributes map[string]string `mapstructure:"attributes"`
	// Parent says where the context of the caller is.
	Parent *ParentConfig `mapstructure:"parent"`
	// BufferSize is how much room there is for spans in the kernel, in bytes.
	BufferSize int `mapstructure:"buffer_size"`
}

// ParentConfig says where a text with the context of the caller is.
type ParentConfig struct {
	// From is a term that is a text.
	From string `mapstructure:"from"`
	// Format is "sqlcommenter" or "traceparent".
	Format string `mapstructure:"format"`
}

// LogConfig makes log records of hits.
type LogConfig struct {
	// Event is a pattern of probes.
	Event string `mapstructure:"event"`
	// RateLimit is how many hits a second become records; 0 is all.
	RateLimit int `mapstructure:"rate_limit"`
	// Where is a condition on them, evaluated in the kernel.
	Where string `mapstructure:"where"`
	// Attributes are terms, by the names of the attributes. Without any, all
	// arguments are attributes.
	Attributes map[string]string `mapstructure:"attributes"`
	// BufferSize is how much room there is for events in the kernel, in bytes.
	BufferSize int `mapstructure:"buffer_size"`
}

// ProfileConfig makes profiles of the stacks at hits.
type ProfileConfig struct {
	// Event is a pattern of probes.
	Event string `mapstructure:"event"`
	// Where is a condition on hits, evaluated in the kernel.
	Where string `mapstructure:"where"`
}
