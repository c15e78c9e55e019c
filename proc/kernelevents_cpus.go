// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"fmt"
	"strings"
)

// maxCPUs bounds the list: Linux has at most 8,192 CPUs.
const maxCPUs = 1 << 16

// parseCPUs reads a list as "0-3,5" from /sys/devices/system/cpu.
func parseCPUs(list string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		low, ok := parseDecimal(first)
		high, ok2 := parseDecimal(last)
		if !ok || !ok2 || low > high || high >= maxCPUs {
			return nil, fmt.Errorf("%w list of CPUs: %q", errMalformed, list)
		}
		for cpu := low; cpu <= high; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}
