// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"debug/elf"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"
)

// What holds a phase off is over when a session has entered the phase, and
// nothing begins to hold it off later. A holder can hold off again.
func TestPhasesFollowEachOther(t *testing.T) {
	for seed := range uint64(2000) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			var l life
			var entered [phases]atomic.Bool
			var all sync.WaitGroup
			for range 20 {
				start, long := time.Duration(random.IntN(100)), time.Duration(random.IntN(20))
				off, next := phase(1+random.IntN(int(phases)-1)), phase(1+random.IntN(int(phases)-1))
				all.Go(func() {
					time.Sleep(start)
					if long%4 == 0 {
						l.enter(next)
						entered[next].Store(true)
						qt.Check(t, qt.IsTrue(l.has(next)))
						return
					}
					hold := func() error {
						time.Sleep(long)
						qt.Check(t, qt.IsFalse(entered[off].Load()))
						return nil
					}
					err := l.before(off, func() error { return errors.Join(hold(), l.before(off, hold)) })
					if err != nil {
						qt.Check(t, qt.ErrorIs(err, os.ErrClosed))
						qt.Check(t, qt.IsTrue(l.has(off)))
					}
				})
			}
			all.Wait()
			qt.Check(t, qt.Equals(l.holders, [phases]int{}))
		})
	}
}

// Calls that end on other threads are recognised: as many starts lack an end as
// ends lack a start.
func TestCallsThatEndOnOtherThreadsAreExplained(t *testing.T) {
	for _, test := range []struct {
		ended  uint64
		many   bool
		losses Losses
		said   bool
	}{
		{0, false, Losses{Left: 36, Replaced: 100, Unfinished: 64, Unmatched: 200}, true},
		{3, false, Losses{Unfinished: 190, Unmatched: 200}, true},
		{1000, false, Losses{Unfinished: 20, Unmatched: 20}, false},
		{256, true, Losses{Unfinished: 1000, Unmatched: 1000}, false},
		{0, false, Losses{Unfinished: 3, Unmatched: 3}, false},
		{0, false, Losses{Unfinished: 5, Unmatched: 5}, true},
		{0, false, Losses{Replaced: 200, Unmatched: 20}, false},
	} {
		all := &seen{ended: test.ended, many: test.many}
		qt.Check(t, qt.Equals(endElsewhere(&test.losses, all), test.said),
			qt.Commentf("%+v", test))
	}
}

// The variable that a function returns is known by its code.
func TestReturnedVariables(t *testing.T) {
	for _, test := range []struct {
		machine elf.Machine
		code    string // hexadecimal
		want    uint64
	}{
		{elf.EM_X86_64, "488b05992d6a00c3", 0x885df0},
		{elf.EM_X86_64, "f30f1efa488b05992d6a00c3", 0x885df4},
		{elf.EM_X86_64, "488b05992d6a0090", 0},
		{elf.EM_X86_64, "8b05992d6a00c3", 0},
		{elf.EM_AARCH64, "c03400b0000045f9c0035fd6", 0x87ca00},
		{elf.EM_AARCH64, "c03400b0000045f9c0035f00", 0},
		{elf.EM_S390, "488b05992d6a00c3", 0},
	} {
		code, err := hex.DecodeString(test.code)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(returned(test.machine, 0x1e3050, append(code, make([]byte, 16)...)), test.want),
			qt.Commentf("%s", test.code))
	}
}
