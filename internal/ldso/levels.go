// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"bufio"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
)

// A processor level of x86-64 is what the psABI defines, each with what the one
// before has. Of an instruction set's members that come together, one is asked
// for. Other machines have levels too (s390x: z13 and up). Their libraries are
// found in the plain directory.
var levels = []struct {
	name  string
	flags []string // as Linux calls them
}{
	{"x86-64-v2", []string{"cx16", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"}},
	{"x86-64-v3", []string{"avx2", "bmi1", "bmi2", "fma"}},
	{"x86-64-v4", []string{"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}},
}

// hostLevels returns the processor levels that this machine reaches, the best
// first. It asks the kernel and not the processor, which in a virtual machine
// takes longer, and which golang.org/x/sys/cpu does in every program that is
// linked with it.
func hostLevels() []string {
	if runtime.GOARCH != "amd64" {
		return nil
	}
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return nil // the libraries in the plain directories are found
	}
	defer f.Close()
	return levelsOf(processorFlags(f))
}

// levelsOf returns the levels that a processor with these flags reaches, the
// best first.
func levelsOf(flags []string) (reached []string) {
	for _, level := range levels {
		for _, flag := range level.flags {
			if !slices.Contains(flags, flag) {
				return reached
			}
		}
		reached = slices.Insert(reached, 0, level.name)
	}
	return reached
}

// processorFlags returns the flags of the first processor in a file like
// /proc/cpuinfo.
func processorFlags(r io.Reader) []string {
	for s := bufio.NewScanner(r); s.Scan(); {
		if name, flags, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "flags" {
			return strings.Fields(flags)
		}
	}
	return nil
}
