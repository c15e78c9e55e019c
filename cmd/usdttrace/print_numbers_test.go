// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"os"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

func TestDurationsHaveThreeDigitsAndAUnit(t *testing.T) {
	for ns, want := range map[float64]string{
		0: "0ns", 1: "1ns", 512: "512ns", 999: "999ns", 1024: "1.02us", 65536: "65.5us", 131072: "131us", 1e6: "1ms",
		1048576: "1.05ms", 1.5e9: "1.50s", 3.6e12: "3600s", 12.34: "12.3ns", 99.96: "100ns", 9.999: "10.0ns",
	} {
		qt.Check(t, qt.Equals(formatDuration(ns), want), qt.Commentf("%v", ns))
	}
	for x, want := range map[float64]string{149.5: "149.5", -2e9: "-2000000000", 3.14159: "3.142", 12345.6: "12346"} {
		qt.Check(t, qt.Equals(formatAverage(x), want))
	}
}

func TestCommandsAreSplitAsAShellDoes(t *testing.T) {
	for text, want := range map[string][]string{
		`a b  c`:           {"a", "b", "c"},
		`sh -c 'a "b" \n'`: {"sh", "-c", `a "b" \n`},
		`a "b \"c\"" d\ e`: {"a", `b "c"`, "d e"},
		`a ''`:             {"a", ""},
	} {
		got, err := splitCommand(text)
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.DeepEquals(got, want), qt.Commentf("%s", text))
	}
	_, err := splitCommand(" ")
	qt.Check(t, qt.ErrorMatches(err, "the command is empty"))
}

func TestKeysAreSplitAtCommasOutsideOfBrackets(t *testing.T) {
	qt.Check(t, qt.DeepEquals(splitKeys("comm, str(arg0, 32),pid"), []string{"comm", "str(arg0, 32)", "pid"}))
}

func TestMissingCapabilities(t *testing.T) {
	status := []byte("Name:\tx\nCapEff:\t000000c000000000\nCapBnd:\t000001ffffffffff\n")
	qt.Check(t, qt.HasLen(missingCapabilities(effectiveCapabilities(status)), 0))
	qt.Check(t, qt.DeepEquals(missingCapabilities(1<<capBPF), []string{"CAP_PERFMON"}))
	qt.Check(t, qt.DeepEquals(missingCapabilities(1<<capPerfmon), []string{"CAP_BPF"}))
	qt.Check(t, qt.HasLen(missingCapabilities(1<<capSysAdmin), 0))
	qt.Check(t, qt.HasLen(missingCapabilities(effectiveCapabilities(nil)), 2))
}

func TestOutputIsFlushedWhenNothingMoreComes(t *testing.T) {
	reader, writer, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	defer reader.Close()
	defer writer.Close()
	out := newOutput(writer)
	for _, line := range []string{"one\n", "two\n"} {
		out.Write([]byte(line))
		qt.Assert(t, qt.IsNil(reader.SetReadDeadline(time.Now().Add(30*time.Second))))
		buf := make([]byte, 100)
		n, err := reader.Read(buf)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(string(buf[:n]), line))
	}
	qt.Check(t, qt.IsNil(out.close()))
}

func TestColoursAreForTerminalsOnly(t *testing.T) {
	reader, writer, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	defer reader.Close()
	defer writer.Close()
	qt.Check(t, qt.IsFalse(newOutput(writer).colours))
	qt.Check(t, qt.Equals(newStyle(false), style{}))
}
