// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"sync"
	"time"

	"github.com/cilium/ebpf"
)

// costs adds up how long the programs of a session have run, also those that
// are not attached any more. What a program runs after it was last asked is not
// in it.
type costs struct {
	mu   sync.Mutex
	last map[ebpf.ProgramID]time.Duration
	past time.Duration // of programs that have gone
}

// programTime asks the kernel how long the programs have run.
func (s *source) programTime() time.Duration {
	c := &s.costs
	c.mu.Lock()
	defer c.mu.Unlock()
	stats, err := s.session.Stats()
	now := make(map[ebpf.ProgramID]time.Duration)
	if err == nil {
		for _, p := range stats.Programs {
			now[p.ID] = p.Time
		}
	} else {
		now = c.last
	}
	sum := time.Duration(0)
	for id, time := range c.last {
		if _, ok := now[id]; !ok {
			c.past += time
		}
	}
	for _, time := range now {
		sum += time
	}
	c.last = now
	return c.past + sum
}
