// SPDX-License-Identifier: BSD-2-Clause

package testneeds

import (
	"fmt"
	"hash/crc64"
	"os"
	"runtime"
	"sync"
	"time"
)

const (
	// usualWork is how long the work of slowness takes on the machine that
	// deadlines are made for: somewhat slower than an idle server of 2020.
	usualWork = 10 * time.Millisecond

	// mostPatience is the factor by which a deadline gets longer at most. An
	// emulated machine is 20 to 30 times slower.
	mostPatience = 40
)

// Patience returns how long a test may wait for something that takes less than
// the usual time on an idle machine: longer where the machine is slow, as an
// emulated one is, or has much else to do.
func Patience(usual time.Duration) time.Duration {
	return time.Duration(float64(usual) * min(max(1, slowness()*load()), mostPatience))
}

// slowness is the factor by which work takes longer here than usually.
var slowness = sync.OnceValue(func() float64 {
	data, table := make([]byte, 1<<20), crc64.MakeTable(crc64.ECMA)
	began := time.Now()
	sum := uint64(0)
	for range 10 {
		sum = crc64.Update(sum, table, data)
	}
	took := time.Since(began)
	runtime.KeepAlive(sum)
	return max(1, float64(took)/float64(usualWork))
})

// load is how many tasks want each processor, 1 if that is not known.
func load() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	var tasks float64
	_, _ = fmt.Sscan(string(text), &tasks) // it stays 0
	return max(1, tasks/float64(runtime.NumCPU()))
}
