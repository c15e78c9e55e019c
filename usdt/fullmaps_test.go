// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"errors"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

func TestAttachWithAFullSpecMap(t *testing.T) {
	c := newCollector(t, nil) // 256 specs, the default
	process := testprog.Start(t, "target-pie")
	target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
	c.attach(t, c.Collect, target, "three", nil)

	_, err := c.Attach(c.Collect, target, nil, elfnote.Exact(provider, "specs"))
	var full *usdt.LimitError
	qt.Assert(t, qt.ErrorAs(err, &full))
	qt.Assert(t, qt.Equals(*full, usdt.LimitError{Limit: "specs", Option: "ManagerOptions.MaxSpecs",
		Capacity: 256, InUse: 1, Needed: 300}))
	qt.Assert(t,
		qt.ErrorMatches(err, `there is room for 256 specs, 1 are in use, and 300 more are needed: `+
			`set ManagerOptions.MaxSpecs to 301 or more`))
	used, capacity := c.SpecsInUse()
	qt.Assert(t, qt.Equals(used, 1))
	qt.Assert(t, qt.Equals(capacity, 256))
	process.Fire("specs", 1)
	c.silent(t)

	// The 400 sites of another probe share one.
	if c.Mode() == usdt.ModeMulti {
		c.attach(t, c.Collect, target, "many", nil)
		used, _ = c.SpecsInUse()
		qt.Assert(t, qt.Equals(used, 2))
	}

	larger := newCollector(t, &usdt.ManagerOptions{MaxSpecs: 300})
	if larger.Mode() == usdt.ModeMulti {
		larger.attach(t, larger.Collect, target, "specs", nil)
		used, capacity = larger.SpecsInUse()
		qt.Assert(t, qt.Equals(used, 300))
		qt.Assert(t, qt.Equals(capacity, 300))
		process.Fire("specs", 1)
		for i, event := range larger.next(t, 300) {
			qt.Assert(t, qt.Equals(event.Val[0], int64(i)))
		}
	}
}

func TestAttachSharesAndRecyclesSpecs(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode, MaxSpecs: 2})
		process := testprog.Start(t, "target-pie")
		target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
		inUse := func() int { used, _ := c.SpecsInUse(); return used }

		one := c.attach(t, c.Collect, target, "three", nil)
		same := c.attach(t, c.Collect, target, "three", nil)
		qt.Assert(t, qt.Equals(inUse(), 1))
		other := c.attach(t, c.Collect, target, "guarded", &usdt.AttachOptions{Cookie: 1})
		qt.Assert(t, qt.Equals(inUse(), 2))
		_, err := c.Attach(c.Collect, target, nil, elfnote.Exact(provider, "sizes"))
		qt.Assert(t, qt.ErrorAs(err, new(*usdt.LimitError)))

		qt.Assert(t, qt.IsNil(one.Close()))
		qt.Assert(t, qt.Equals(inUse(), 2))
		qt.Assert(t, qt.IsNil(same.Close()))
		qt.Assert(t, qt.Equals(inUse(), 1))
		// An attachment that fails after it has taken its specs gives them
		// back.
		_, err = c.Attach(wrongProgram(t), target, nil, elfnote.Exact(provider, "sizes"))
		qt.Assert(t, qt.IsNotNil(err))
		qt.Assert(t, qt.Equals(inUse(), 1))

		c.attach(t, c.Collect, target, "sizes", nil)
		process.Fire("sizes", 1)
		qt.Assert(t, qt.Equals(c.next(t, 1)[0].Val[0], -100))
		qt.Assert(t, qt.IsNil(other.Close()))
		qt.Assert(t, qt.Equals(inUse(), 1))
	})
}

func TestAttachTakesOneSpecForAnAddress(t *testing.T) {
	c := newCollector(t, &usdt.ManagerOptions{Mode: usdt.ModeSingleIPMap})
	process := testprog.Start(t, "target-pie")
	target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
	first := c.attach(t, c.Collect, target, "three", &usdt.AttachOptions{Cookie: 1})
	_, err := c.Attach(c.Collect, target, &usdt.AttachOptions{Cookie: 2},
		elfnote.Exact(provider, "three"))
	qt.Assert(t,
		qt.ErrorMatches(err,
			`address 0x[0-9a-f]+ is attached with other arguments or another cookie already; .*`))
	process.Fire("three", 1)
	qt.Assert(t, qt.Equals(c.next(t, 1)[0].Cookie, 1))
	qt.Assert(t, qt.IsNil(first.Close()))
	c.attach(t, c.Collect, target, "three", &usdt.AttachOptions{Cookie: 2})
	process.Fire("three", 1)
	qt.Assert(t, qt.Equals(c.next(t, 1)[0].Cookie, 2))
}

func TestAttachWithAFullAddressMap(t *testing.T) {
	c := newCollector(t, &usdt.ManagerOptions{Mode: usdt.ModeSingleIPMap, MaxSpecs: 1})
	process := testprog.Start(t, "target-pie")
	path := testprog.Path(t, "target-pie")

	_, err := c.Attach(c.Collect, usdt.Target{Path: path}, nil, elfnote.Exact(provider, "three"))
	qt.Assert(t, qt.ErrorIs(err, errors.ErrUnsupported))
	qt.Assert(t,
		qt.ErrorMatches(err,
			`.*target-pie: the kernel has no BPF cookies on uprobes \(needs Linux 5\.15\); .* for one PID only`))

	_, err = c.Attach(c.Collect, usdt.Target{Path: testprog.Path(t, "libtarget.so"),
		PID: process.PID}, nil, elfnote.Exact(provider, "three"))
	qt.Assert(t, qt.ErrorMatches(err, `process \d+ has not mapped .*libtarget.so`))

	_, err = c.Attach(c.Collect, usdt.Target{Path: path, PID: process.PID}, nil,
		elfnote.Exact(provider, "many"))
	var full *usdt.LimitError
	qt.Assert(t, qt.ErrorAs(err, &full))
	qt.Assert(t, qt.Equals(*full, usdt.LimitError{Limit: "addresses",
		Option: "ManagerOptions.MaxSpecs", Capacity: 4, Needed: 400}))
	used, _ := c.SpecsInUse()
	qt.Assert(t, qt.Equals(used, 0))
}

func TestManagerMakesTheAddressMapSmallIfUnused(t *testing.T) {
	for _, mode := range modes {
		if !testneeds.KernelAtLeast(t, since[mode]) {
			continue
		}
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		entries := c.BpfUsdtIpToSpecId.MaxEntries()
		if mode == usdt.ModeSingleIPMap {
			qt.Check(t, qt.Equals(entries, 1024))
		} else {
			qt.Check(t, qt.Equals(entries, 1))
		}
	}
}
