// SPDX-License-Identifier: BSD-2-Clause

// Package metadata has what metadata.yaml says of the receiver.
package metadata

import "go.opentelemetry.io/collector/component"

// Type is the receiver's type in a Collector's configuration.
var Type = component.MustNewType("usdt")

// ScopeName is the name of the instrumentation scope of all that the receiver
// sends.
const ScopeName = "github.com/gousdt/gousdt/otelcol/usdtreceiver"

// How stable the receiver is for each kind of data.
const (
	MetricsStability  = component.StabilityLevelDevelopment
	TracesStability   = component.StabilityLevelDevelopment
	LogsStability     = component.StabilityLevelDevelopment
	ProfilesStability = component.StabilityLevelDevelopment
)
