// SPDX-License-Identifier: BSD-2-Clause

// Package usdtreceiver is a receiver for the OpenTelemetry Collector. It makes
// metrics, spans and log records of the USDT probes that the processes of this
// machine pass.
//
// README.md beside this file describes every setting.
package usdtreceiver
