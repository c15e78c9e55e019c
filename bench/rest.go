// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"os"
	"time"
)

// maxLoad is the load of the last minute above which nothing is measured that
// is to be published: ratios bear a busy machine, but not all of them.
const maxLoad = 1

// waitForRest waits until the machine is at rest, and returns how long that
// took. It gives up after a while.
func waitForRest(patience time.Duration) (time.Duration, error) {
	start := time.Now()
	for {
		load, err := loadOfLastMinute()
		if err != nil {
			return 0, err
		}
		waited := time.Since(start).Round(time.Second)
		if load <= maxLoad {
			return waited, nil
		}
		if waited >= patience {
			return 0, fmt.Errorf("the load is %.2f, after waiting %v for it to fall to %d: results of a busy machine are not written "+
				"(-wait sets how long, and without -o they are printed)", load, waited, maxLoad)
		}
		fmt.Fprintf(os.Stderr, "bench: the load is %.2f, waiting for it to fall to %d\n",
			load, maxLoad)
		time.Sleep(10 * time.Second)
	}
}

func loadOfLastMinute() (float64, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err != nil {
		return 0, fmt.Errorf("/proc/loadavg: %w", err)
	}
	return load, nil
}
