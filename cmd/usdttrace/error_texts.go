// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// explain returns the text of an error as it is printed. For a missing
// privilege it names that, and says how to run the command.
func explain(err error) string {
	var denied *usdt.PermissionError
	var filtered *trace.FilteredError
	switch {
	case errors.As(err, &denied):
		return fmt.Sprintf("not permitted (%s): %s", denied.Op, advice(denied.Err))
	case errors.As(err, &filtered):
		return filtered.Error()
	}
	text := err.Error()
	var full *usdt.LimitError
	if errors.As(err, &full) {
		for limit, option := range limitOptions {
			if option == full.Option {
				flag := *full
				flag.Option = "--limits " + limit + "="
				text = strings.Replace(text, full.Error(), flag.Error(), 1)
			}
		}
	}
	return text
}

// named returns an error about an option of the session as one about the flag
// that sets it.
func (t *tracer) named(err error) error {
	var option *trace.OptionError
	if !errors.As(err, &option) {
		return err
	}
	flag := map[string]string{"Filter": "where", "RingSize": "buffer", "StackCopy": "unwind",
		"SampleEvery": "every", "SampleRate": "rate"}[option.Field]
	switch option.Field {
	case "Captures":
		flag = "str"
		if option.Index >= 0 {
			flag = t.options.captures[option.Index].flag()
		}
	case "Spans":
		return fmt.Errorf("--match: %w", option.Err) // all else of them has been checked
	case "Aggregators":
		asked := slices.DeleteFunc(slices.Clone(t.asked),
			func(a *aggregation) bool { return a.aggregator == nil })
		flag = asked[option.Index].kind
	}
	// An aggregator has fields, and so has a latency.
	for depth := 1; errors.As(option.Err, &option); depth++ {
		switch {
		case depth == 1 && option.Field == "By":
			flag = "by"
		case depth == 2:
			flag = "match"
		}
	}
	if flag == "" {
		return err
	}
	return fmt.Errorf("--%s: %w", flag, option.Err)
}

// Numbers of capabilities, from linux/capability.h.
const (
	capSysAdmin = 21
	capPerfmon  = 38
	capBPF      = 39
)

// advice says which capability is missing.
func advice(cause error) string {
	status, _ := os.ReadFile("/proc/self/status") // if that fails, all are missing
	have := effectiveCapabilities(status)
	switch missing := missingCapabilities(have); len(missing) {
	case 0:
		if have&(1<<capSysAdmin) == 0 {
			return fmt.Sprintf("%v, although CAP_BPF and CAP_PERFMON are there: --stats needs CAP_SYS_ADMIN, and so does "+
				"attaching by perf events (kernels since July 2025 without uprobe_multi links, and before Linux 5.8); run it "+
				"as root, for example with sudo", cause)
		}
		return fmt.Sprintf("%v, although CAP_SYS_ADMIN is there: by the rules of a container, or a kernel in lockdown mode", cause)
	case 1:
		return missing[0] + " is missing; run it as root, for example with sudo"
	default:
		return strings.Join(missing, " and ") +
			" are missing; run it as root, for example with sudo"
	}
}

// effectiveCapabilities reads the line CapEff of /proc/PID/status.
func effectiveCapabilities(status []byte) uint64 {
	_, after, _ := bytes.Cut(status, []byte("\nCapEff:"))
	line, _, _ := bytes.Cut(after, []byte{'\n'})
	set, _ := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 64)
	return set
}

func missingCapabilities(have uint64) (missing []string) {
	if have&(1<<capSysAdmin) != 0 {
		return nil // it contains them
	}
	if have&(1<<capBPF) == 0 {
		missing = append(missing, "CAP_BPF")
	}
	if have&(1<<capPerfmon) == 0 {
		missing = append(missing, "CAP_PERFMON")
	}
	return missing
}
