// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// Nothing came: no probe was passed, or the filter is why.
func TestFilterThatWasFalseIsKnown(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		process := start(t, "target-pie")
		s := open(t, process, "gousdt_test:inlined", &trace.SessionOptions{Mode: mode,
			Filter: "arg0 < 1"})
		filtered := func() bool {
			stats, err := s.Stats()
			qt.Assert(t, qt.IsNil(err))
			return stats.Filtered
		}
		qt.Check(t, qt.IsFalse(filtered()))
		process.Fire("inlined", 1)
		qt.Check(t, qt.IsTrue(filtered()))
	})
}

// The probe inlined passes (1, -101) to (5, -105) from five sites: constants,
// registers, and memory with an index. The probe specs passes 0 to 299,
// constants all. Values of the others are in testdata/values.h.
func TestFilter(t *testing.T) {
	testprog.RequireBPF(t)
	process := start(t, "target-pie")
	pid := fmt.Sprint(process.PID)
	for _, test := range []struct {
		group, filter string
		hits          int
	}{
		{"inlined", "arg0 == 3", 1},
		{"inlined", "arg0 != 3", 4},
		{"inlined", "arg0 > 3", 2},
		{"inlined", "arg0 >= 3", 3},
		{"inlined", "arg0 < 0x3", 2},
		{"inlined", "3 > arg0", 2},
		{"inlined", "arg0 <= 3", 3},
		{"inlined", "arg0", 5},
		{"inlined", "!arg0 || arg0 == 4", 1},
		{"inlined", "arg1 < -103", 2},
		{"inlined", "arg1 >= -103 && arg0 != 1", 2},
		{"inlined", "arg1 > -102 || arg0 > 4", 2},
		{"inlined", "!(arg1 > -102 || arg0 > 4)", 3},
		{"inlined", "!(arg1 > -102) && !(arg0 > 4)", 3},
		{"inlined", "arg0 > arg1", 5},
		{"inlined", "arg1 > arg0", 0},
		{"inlined", "arg0 & 1", 3},
		{"inlined", "arg0 & 6 == 2", 2},
		{"inlined", "arg1 > 18446744073709551515", 0},
		{"inlined", "arg1 < 18446744073709551515", 5},
		{"inlined", "arg0 > 2.5", 3},
		{"inlined", "arg0 == 2.5 || arg0 >= 4.5", 1},
		{"inlined",
			"arg0 == 1 && arg1 == -101 || arg0 == 5 && arg1 == -105 || arg0 == 3 && arg1 == -105",
			2},

		{"specs", "arg0 >= 100 && arg0 < 110", 10},
		{"specs", "arg0 == 299 || arg0 == 300", 1},

		// 64 bits of either sign, each in a register or on the stack.
		{"sizes", "arg0 == -100 && arg1 == 200 && arg2 == -30000 && arg3 == 60000", 1},
		{"sizes", "arg4 == -2000000000 && arg5 == 4000000000", 1},
		{"sizes", "arg6 == -9000000000000000001 && arg7 == 18000000000000000001", 1},
		{"sizes", "arg7 > 9223372036854775807 && arg6 < 0", 1},
		{"sizes", "arg6 < arg7 && arg7 > arg6 && arg6 != arg7", 1},
		{"sizes", "arg7 < arg6 || arg6 > arg7 || arg7 == arg6", 0},
		{"sizes", "arg1 > -1 && arg1 != -56", 1},
		{"sizes", "arg0 < 255 && arg0 != 156", 1},
		{"stack",
			"arg0 == -100 && arg1 == 200 && arg2 == -30000 && arg3 == 60000 && arg4 == -2000000000",
			1},
		{"stack",
			"arg5 == 4000000000 && arg6 == -9000000000000000001 && arg7 == 18000000000000000001",
			1},
		{"stack", "arg5 > arg4 && arg3 > arg2 && arg7 > arg5 && arg0 < arg1", 1},

		{"floats", "arg0 == 1.5 && arg1 == -2.25 && arg2 == 0.5 && arg3 == 9e299", 1},
		{"floats", "arg0 > 1.4999 && arg0 < 1.5001 && arg1 < -2.2 && arg1 > -2.3 && arg1 != 2.25",
			1},
		{"floats",
			"arg0 > 1 && arg0 < 2 && arg1 <= -2 && arg1 >= -3 && arg3 > 1e299 && arg3 < 1e300", 1},
		{"floats", "arg0 <= 1.4999 || arg1 > -2.25 || arg1 < -2.25 || arg2 == 0 || arg3 < 0", 0},

		{"strings", `arg0 == "hello, gousdt"`, 1},
		{"strings", `arg0 == "hello, gousd"`, 0},
		{"strings", `arg0 == "hello, gousdt!"`, 0},
		{"strings", `arg0 != "hello"`, 1},
		{"strings", `arg0 != "hello, gousdt"`, 0},
		{"strings", `!(arg0 == "hello, gousdt")`, 0},
		{"strings", `"" == arg2 && arg2 != "x"`, 1},
		{"strings", `str(arg0, 5) == "hello"`, 1},
		{"strings", `str(arg0, 5) == "hell"`, 0},
		{"strings", `str(arg0, 5) != "hello"`, 0},
		{"strings", `str(arg0, 20) == "hello"`, 0},
		{"strings", `str(arg1, 10) == "0123456789" && arg1 != "0123456789"`, 1},
		{"strings", `str(arg1, 128) == "` + strings.Repeat("0123456789", 13)[:128] + `"`, 1},

		{"three", "pid == " + pid + " && tid == " + pid, 1},
		{"three", "pid != " + pid, 0},
		{"three", "uid == " + fmt.Sprint(os.Getuid()) + " && gid == " +
			fmt.Sprint(os.Getgid()) + " && cpu < 4096", 1},
		{"three", `comm == "target-pie"`, 1},
		{"three", `comm != "target-pie"`, 0},
		{"three", `comm == "target-pi"`, 0},
		{"three", `provider == "gousdt_test" && probe == "three" && probe != "four"`, 1},
		{"three", `arg1 == "hello, gousdt" && arg2 == 18000000000000000001 && arg0 < -1999999999`,
			1},

		// What cannot be read is neither equal nor unequal.
		{"fault", "arg1 == 0", 0},
		{"fault", "arg1 != 0", 0},
		{"fault", "!(arg1 == 0)", 0},
		{"fault", "arg1 == 0 || arg0 < 0", 1},
		{"fault", "arg0 < 0 || arg1 == 0", 1},
		{"fault", "arg2 == 17 && arg0 == -2000000000", 1},
		{"fault", `arg0 == "text"`, 0},
		{"fault", `arg2 != "text"`, 0},
	} {
		t.Run(test.group+" "+test.filter, func(t *testing.T) {
			s, err := trace.Open(usdt.Target{Path: process.path},
				&trace.SessionOptions{Filter: test.filter,
					Events: &trace.EventOptions{RingSize: 1 << 16}},
				elfnote.MustParsePattern("gousdt_test:"+test.group))
			var filtered *tracing.FilteredError
			if test.hits == 0 && errors.As(err, &filtered) {
				return
			}
			qt.Assert(t, qt.IsNil(err))
			defer s.Close()
			process.Fire(test.group, 1)
			events, _ := rest(t, s)
			qt.Assert(t, qt.HasLen(events, test.hits))
		})
	}
}

// A filter that may hold is not to blame where no aggregation is about the
// probes.
func TestFilterIsNotBlamedForTheProbesOfNoAggregation(t *testing.T) {
	process := start(t, "target-pie")
	s := newSession(t, &trace.SessionOptions{Filter: "pid > 0",
		Aggregators: []*trace.Aggregator{trace.NewAggregator(trace.Aggregation{
			Probes: []elfnote.Pattern{elfnote.Exact("gousdt_test", "none")}})}})
	_, err := s.Attach(usdt.Target{Path: process.path}, nil, elfnote.Exact("gousdt_test", "three"))
	qt.Check(t, qt.ErrorAs(err, new(*tracing.FilteredError)))
	qt.Check(t, qt.ErrorMatches(err, ".*: its probes that match have no part in what is asked for"))
}
