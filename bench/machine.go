// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/bench/internal/peer"
)

// describeMachine returns what the results depend on, a line each.
func describeMachine(waited string) []string {
	var name unix.Utsname
	_ = unix.Uname(&name)
	load, _ := os.ReadFile("/proc/loadavg")
	lines := []string{
		fmt.Sprintf("%d × %s", runtime.NumCPU(), processor()),
		fmt.Sprintf("Linux %s, %s", unix.ByteSliceToString(name.Release[:]),
			unix.ByteSliceToString(name.Machine[:])),
		fmt.Sprintf("load at the beginning (1, 5, 15 minutes): %s%s",
			strings.Join(strings.Fields(string(load))[:3], ", "), waited),
		fmt.Sprintf("gousdt built with %s", runtime.Version()),
		"libbpf: " + libbpfVersion(),
	}
	for _, tool := range [][]string{{"bpftrace", "--version"}, {"readelf", "--version"},
		{"clang-14", "--version"}} {
		lines = append(lines, toolVersion(tool[0], tool[1:]...))
	}
	if version := bccVersion(); version != "" {
		lines = append(lines, "bcc "+version)
	} else {
		lines = append(lines, "bcc: not installed")
	}
	return append(lines, softwareVersions()...)
}

func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func libbpfVersion() string {
	p, err := peer.Start("libbpf")
	if err != nil {
		return err.Error()
	}
	defer p.Close()
	answer, err := p.Ask("version")
	if err != nil {
		return err.Error()
	}
	version := strings.Join(answer, " ")
	if os.Getenv("LIBBPF_LIBS") == "" {
		version += ", the system's (the newest release is not run: it is not built)"
	}
	return version
}

func toolVersion(name string, arguments ...string) string {
	out, err := exec.Command(name, arguments...).Output()
	if err != nil {
		return name + ": not installed"
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return first
}

// softwareVersions names the files whose probes are listed.
func softwareVersions() []string {
	var lines []string
	for _, find := range []func() (string, error){postgres, libjvm} {
		path, err := find()
		if err != nil {
			lines = append(lines, err.Error())
			continue
		}
		if info, err := os.Stat(path); err == nil {
			lines = append(lines, fmt.Sprintf("%s, %.1f MB", path, float64(info.Size())/1e6))
		}
	}
	return lines
}
