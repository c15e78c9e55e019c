// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/gousdt/gousdt/bench/internal/compare"
	"github.com/gousdt/gousdt/bench/internal/peer"
)

// What counts hits for months, and is asked for them over HTTP.
const (
	byCollector    = "OpenTelemetry Collector with usdtreceiver"
	byEBPFExporter = "ebpf_exporter, of one file named beforehand"
)

const (
	idleProcesses = 500
	idleTime      = 10 * time.Second

	countedHits = 1_000_000
	countedTime = 10 * time.Second
)

func collectorRows() []row {
	return []row{
		{
			name: "collector/idle",
			title: fmt.Sprintf("a Collector, or ebpf_exporter, on a host with %d processes more, nothing happening: processor time in %v",
				idleProcesses, idleTime),
			rounds: 3,
			goals:  []compare.Goal{{Of: byCollector, More: float64(idleTime) / 100}},
			prepare: func(e *env) ([]compare.Contestant, error) {
				return e.daemons((*daemon).idle)
			},
		},
		{
			name: "collector/counting",
			title: fmt.Sprintf("a Collector, or ebpf_exporter, while a program passes a probe %d times in %v, all counted: processor time of its own",
				countedHits, countedTime),
			rounds: 3,
			prepare: func(e *env) ([]compare.Contestant, error) {
				return e.daemons((*daemon).counting)
			},
		},
		{
			name:   "collector/memory",
			title:  fmt.Sprintf("a Collector, or ebpf_exporter, on a host with %d processes more: resident memory", idleProcesses),
			unit:   compare.Bytes,
			rounds: 3,
			prepare: func(e *env) ([]compare.Contestant, error) {
				return e.daemons((*daemon).resident)
			},
		},
	}
}

// daemons returns both, each counting the same probe of the same process.
func (e *env) daemons(measure func(*daemon, *env) (float64, error)) ([]compare.Contestant, error) {
	collector, err := e.collector()
	if err != nil {
		return nil, err
	}
	target, err := e.start("target")
	if err != nil {
		return nil, err
	}
	if err := e.crowd(e.pick(idleProcesses, idleProcesses, 20)); err != nil {
		return nil, err
	}
	contestant := func(name string, d *daemon, err error) compare.Contestant {
		if err == nil {
			d.target = target
			err = e.run(d)
		}
		if err != nil {
			return missing(name, err)
		}
		return compare.Contestant{Name: name, Once: true,
			Measure: func(int) (float64, error) { return measure(d, e) }}
	}
	all := []compare.Contestant{contestant(byCollector, collector, nil)}
	if err := all[0].Missing; err != nil {
		return nil, err
	}
	exporter, err := e.ebpfExporter()
	return append(all, contestant(byEBPFExporter, exporter, err)), nil
}

const collectorConfig = `
receivers:
  usdt:
    collection_interval: 1s
    resource: container
    metrics:
      - name: bench_hits
        count: bench:%s
exporters:
  prometheus:
    endpoint: %s
service:
  telemetry: { metrics: { level: none } }
  pipelines:
    metrics: { receivers: [usdt], exporters: [prometheus] }
`

// collector returns the Collector that make otelcol builds.
func (e *env) collector() (*daemon, error) {
	folder, err := peer.Folder()
	if err != nil {
		return nil, err
	}
	program := filepath.Join(folder, "..", "otelcol", "build", "otelcol-usdt")
	if _, err := os.Stat(program); err != nil {
		return nil, &unableError{"the Collector is not built, which takes minutes: make otelcol"}
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(e.dir, "collector.yaml")
	text := fmt.Sprintf(collectorConfig, execProbe, address)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	return &daemon{cmd: exec.Command(program, "--config", config), address: address}, nil
}

const exporterConfig = `
metrics:
  counters:
    - name: bench_hits
      help: Hits of the probe
      labels:
        - name: key
          size: 4
          decoders: [{ name: uint }]
`

// ebpfExporter returns ebpf_exporter with a program that counts in a map.
func (e *env) ebpfExporter() (*daemon, error) {
	program, err := exec.LookPath("ebpf_exporter")
	if err != nil {
		return nil, &unableError{"ebpf_exporter is not in PATH, and Debian has no package of it"}
	}
	object, err := peer.Build("counter.bpf.o")
	if err != nil {
		return nil, &notHereError{reason: err.Error()}
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	// It finds both by the directory and their name.
	name := filepath.Join(e.dir, "counter")
	text, err := os.ReadFile(object)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(name+".bpf.o", text, 0o644); err != nil {
		return nil, err
	}
	if err := os.WriteFile(name+".yaml", []byte(exporterConfig), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "--config.dir", e.dir, "--config.names", "counter",
		"--web.listen-address", address)
	return &daemon{cmd: cmd, address: address}, nil
}
