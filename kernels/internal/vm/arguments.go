// SPDX-License-Identifier: BSD-2-Clause

package vm

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// GuestVariable is the environment variable that tells a test in which kernel
// it was meant to run: MACHINE/SERIES, as platform.ParseKernel reads it, or
// only MACHINE where the kernel was given as a file. A test that needs to know
// whether it runs in a guest looks for it.
const GuestVariable = "GOUSDT_GUEST"

// Environment selects what a guest's tests see of the host's environment:
// the variables with the given names and those of this module's own, which
// start with "GOUSDT_", but not those that name places on the host.
func Environment(guest string, host, names []string) []string {
	env := []string{GuestVariable + "=" + guest}
	for _, variable := range host {
		name, _, _ := strings.Cut(variable, "=")
		own := strings.HasPrefix(name, "GOUSDT_") && name != GuestVariable &&
			name != "GOUSDT_TESTDATA"
		if own || slices.Contains(names, name) {
			env = append(env, variable)
		}
	}
	return env
}

// TestArguments adapts the arguments that go test gives a test binary to a
// guest, whose files are gone when it is off. The time is that of the
// -test.timeout among them (and a little more, so that it is the test that
// tells what hangs), or else the given one.
func TestArguments(arguments []string, otherwise time.Duration) ([]string, time.Duration, error) {
	var kept []string
	timeout := otherwise
	for _, argument := range arguments {
		name, value, _ := strings.Cut(strings.TrimLeft(argument, "-"), "=")
		switch name {
		case "test.testlogfile", "test.outputdir", "test.gocoverdir":
			// go test always gives them.
			continue
		case "test.coverprofile", "test.cpuprofile", "test.memprofile", "test.blockprofile",
			"test.mutexprofile", "test.trace":
			return nil, 0, fmt.Errorf("-%s: a guest cannot leave files behind", name)
		case "test.timeout":
			t, err := time.ParseDuration(value)
			if err != nil {
				return nil, 0, fmt.Errorf("-%s: %w", name, err)
			}
			if t > 0 {
				timeout = t + 15*time.Second
			}
		}
		kept = append(kept, argument)
	}
	return kept, timeout, nil
}
