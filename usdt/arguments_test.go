// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
)

// programs are the kinds of file that probes live in: the file that has them,
// and the program to run.
var programs = []struct{ name, file, run string }{
	{"position-independent", "target-pie", "target-pie"},
	{"static", "target-static", "target-static"},
	{"shared library", "libtarget.so", "target-shared"},
}

// modesOf returns the modes in which a kind of file is tested. Perf events of
// many specs take seconds to close. So except in make test-soak, ModeSingle is
// tested with one kind of file: its programs know a site by the cookie, as in
// ModeMulti.
func modesOf(prog int) []usdt.Mode {
	if prog > 0 && testprog.Soak(1, 0) > 0 {
		return []usdt.Mode{usdt.ModeMulti, usdt.ModeSingleIPMap}
	}
	return modes
}

// Every value of every argument of every probe, in every mode and kind of file.
func TestArgumentsHaveTheRightValues(t *testing.T) {
	for i, prog := range programs {
		t.Run(prog.name, func(t *testing.T) {
			forEach(t, modesOf(i), func(t *testing.T, mode usdt.Mode) {
				t.Logf("gousdt-mode: %s", mode)
				file := testprog.Path(t, prog.file)
				process := testprog.Start(t, prog.run)
				checkAllArguments(t, mode, file, process)
			})
		})
	}
}

// 32-bit programs on a 64-bit kernel: the registers are those of the kernel,
// addresses wrap at 32 bits.
func TestArgumentsOf32BitPrograms(t *testing.T) {
	testneeds.Only(t, "no other kernel here runs programs of 32 bits", "amd64")
	for i, prog := range programs {
		t.Run(prog.name, func(t *testing.T) {
			forEach(t, modesOf(i), func(t *testing.T, mode usdt.Mode) {
				file := testprog.CrossPath(t, "386", prog.file)
				process := testprog.Start(t, testprog.CrossPath(t, "386", prog.run))
				checkAllArguments(t, mode, file, process)
			})
		})
	}
}

// The traced program keeps the data below its stack pointer, with any nop at
// the site and any replacement by the kernel. The program checks that itself
// and answers with an error.
func TestAttachLeavesTheRedZoneAlone(t *testing.T) {
	testneeds.Only(t, "no other kernel replaces breakpoints by calls", "amd64")
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		process := testprog.Start(t, "target-pie")
		target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
		for _, probe := range []string{"nop", "nop10", "nop5"} {
			lnk := c.attach(t, c.Collect3, target, probe, nil)
			moved := lnk.Selection().Sites()[0].Instruction - lnk.Selection().Sites()[0].Location
			if probe == "nop10" && uprobeAnswer() == unix.EPROTO {
				qt.Check(t, qt.Equals(moved, 1), qt.Commentf(probe))
			} else {
				qt.Check(t, qt.Equals(moved, 0), qt.Commentf(probe))
			}
			process.Fire(probe, 1000)
			for _, event := range c.next(t, 1000) {
				qt.Assert(t, qt.Equals(event.Val[0], -2000000000))
			}
			qt.Assert(t, qt.IsNil(lnk.Close()))
			process.Fire(probe, 1000)
			c.silent(t)
		}
	})
}

// A nop that a kernel would replace without care is refused, in any form, and
// any other nop does no harm.
func TestAttachLeavesTheRedZoneAloneAtALongNop(t *testing.T) {
	testneeds.Only(t, "no other kernel replaces breakpoints by calls", "amd64")
	for _, tc := range []struct {
		name string
		code []byte
	}{
		{"plain", []byte{0x0f, 0x1f, 0x44, 0x00, 0x00}},
		{"operand size", []byte{0x66, 0x0f, 0x1f, 0x40, 0x00}},
		{"prefixes", []byte{0x66, 0x66, 0x66, 0x66, 0x90}},
		{"displacement", []byte{0x0f, 0x1f, 0x44, 0x00, 0x08}},
		{"index", []byte{0x0f, 0x1f, 0x44, 0x18, 0x00}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			forEachMode(t, func(t *testing.T, mode usdt.Mode) {
				c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
				path, _ := copies(t, "target-pie")
				patch(t, path, "nop5", append(tc.code, 0x90)) // as long as what is there
				process := testprog.Start(t, path)
				lnk, err := c.Manager.Attach(c.Collect3, usdt.Target{Path: path, PID: process.PID},
					nil, elfnote.Exact(provider, "nop5"))
				if uprobeAnswer() == unix.ENXIO {
					qt.Assert(t, qt.ErrorMatches(err, `.*: a five-byte nop, .*`))
					return
				}
				qt.Assert(t, qt.IsNil(err))
				process.Fire("nop5", 1000)
				c.next(t, 1000)
				qt.Assert(t, qt.IsNil(lnk.Close()))
			})
		})
	}
}

// patch writes other machine code where a file has a probe's first site.
func patch(t *testing.T, path, probe string, code []byte) {
	t.Helper()
	sel, err := usdt.Select(usdt.Target{Path: path}, elfnote.Exact(provider, probe))
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	qt.Assert(t, qt.IsNil(err))
	_, err = file.WriteAt(code, int64(sel.Sites()[0].Offset))
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(file.Close()))
}

// uprobeAnswer is the kernel's answer to the system call of its trampolines:
// EPROTO means that it makes safe calls of ten-byte nops.
func uprobeAnswer() unix.Errno {
	const uprobe = 336
	_, _, errno := unix.RawSyscall(uprobe, 0, 0, 0)
	return errno
}

func checkAllArguments(t *testing.T, mode usdt.Mode, path string, process *testprog.Process) {
	file, err := elfnote.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	expected := expectedIn(t, file, mode)

	// One attachment for all probes; the cookie says which one an event is of.
	numbers := make(map[string]uint64)
	var patterns []elfnote.Pattern
	for i, probe := range expected {
		numbers[probe.Provider+":"+probe.Name] = uint64(i)
		patterns = append(patterns, elfnote.Exact(probe.Provider, probe.Name))
	}
	c := newCollector(t, &usdt.ManagerOptions{Mode: mode, MaxSpecs: 1024})
	lnk, err := c.Attach(c.Collect, usdt.Target{ELF: file, PID: process.PID},
		&usdt.AttachOptions{SiteCookie: func(site usdt.Site) uint64 {
			return numbers[site.Provider+":"+site.Name]
		}},
		patterns...)
	qt.Assert(t, qt.IsNil(err))

	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", process.PID))
	qt.Assert(t, qt.IsNil(err))
	defer memory.Close()

	fired := make(map[string]bool)
	for _, probe := range expected {
		if fired[probe.Group] {
			continue
		}
		fired[probe.Group] = true
		process.Fire(probe.Group, 1)

		hits := 0
		for _, other := range expected {
			if other.Group == probe.Group {
				hits += len(other.Hits)
			}
		}
		seen := make(map[uint64]int)
		for _, event := range c.next(t, hits) {
			of := expected[event.Cookie]
			qt.Assert(t, qt.Equals(of.Group, probe.Group))
			n := seen[event.Cookie]
			seen[event.Cookie]++
			qt.Assert(t, qt.IsTrue(n < len(of.Hits)), qt.Commentf("%s is hit too often", of.Name))
			qt.Check(t, qt.Equals(int(event.Pid), process.PID))
			checkArguments(t, fmt.Sprintf("%s hit %d", of.Name, n), memory, of.Hits[n], &event)
		}
		c.silent(t)
	}

	qt.Assert(t, qt.IsNil(lnk.Close()))
	// A process that reads what descriptors others have, as LeakCheck does in
	// tests of another package, holds the link for a moment longer.
	testneeds.Await(t, time.Second, "the end of hits", func() bool {
		process.Fire("three", 1)
		c.events.SetDeadline(time.Unix(1, 0))
		_, err := c.events.Read()
		return errors.Is(err, os.ErrDeadlineExceeded)
	})
	used, _ := c.SpecsInUse()
	qt.Assert(t, qt.Equals(used, 0))
}

// expectedIn returns the probes of the file that can be fired.
func expectedIn(t *testing.T, file *elfnote.File, mode usdt.Mode) []testprog.Probe {
	t.Helper()
	sites := make(map[string]int)
	for site, err := range file.Sites() {
		if err == nil {
			sites[site.Provider+":"+site.Name]++
		}
	}
	var probes []testprog.Probe
	for _, probe := range testprog.Expected(file.Header().Machine) {
		// A single link takes a tenth of a second to close.
		if mode != usdt.ModeMulti && probe.Sites > 20 {
			continue
		}
		qt.Assert(t, qt.Equals(sites[probe.Provider+":"+probe.Name], probe.Sites),
			qt.Commentf("sites of %s", probe.Name))
		probes = append(probes, probe)
	}
	return probes
}

func checkArguments(t *testing.T, hit string, memory *os.File, want []testprog.Arg,
	event *testbpf.ArgsEvent) {
	t.Helper()
	qt.Check(t, qt.Equals(int(event.ArgCnt), min(len(want), sitespec.MaxArgs)),
		qt.Commentf("%s: count", hit))
	for i := range event.Val {
		at := qt.Commentf("%s: argument %d", hit, i)
		code, size, value := unix.Errno(-event.Err[i]), event.Size[i], uint64(event.Val[i])
		if i >= len(want) || i >= sitespec.MaxArgs {
			qt.Check(t, qt.Equals(code, unix.ENOENT), at)
			qt.Check(t, qt.Equals(unix.Errno(-size), unix.ENOENT), at)
			qt.Check(t, qt.Equals(value, 0), at)
			continue
		}

		arg := want[i]
		qt.Check(t, qt.Equals(int(size), arg.Size), at)
		switch {
		case arg.Kind == testprog.Unavailable:
			qt.Check(t, qt.Equals(code, unix.EOPNOTSUPP), at)
			qt.Check(t, qt.Equals(value, 0), at)
			continue
		case arg.Kind == testprog.Fault:
			qt.Check(t, qt.Equals(code, unix.EFAULT), at)
			qt.Check(t, qt.Equals(value, 0), at)
			continue
		}
		qt.Check(t, qt.Equals(code, 0), at)
		switch arg.Kind {
		case testprog.Value:
			qt.Check(t, qt.Equals(value, arg.Value), at)
		case testprog.Text:
			qt.Check(t, qt.Equals(textAt(memory, value), arg.Text), at)
		case testprog.Location:
			qt.Check(t, qt.Equals(value, event.Ip), at)
		}
	}
}

func textAt(memory *os.File, address uint64) string {
	buf := make([]byte, 1024)
	n, _ := memory.ReadAt(buf, int64(address))
	text, _, _ := bytes.Cut(buf[:n], []byte{0})
	return string(text)
}

// BPF_USDT reads the same values as bpf_usdt_arg.
func TestArgumentsOfTypedParameters(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		process := testprog.Start(t, "target-pie")
		target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}

		for _, tc := range []struct {
			probe string
			prog  *ebpf.Program
			reads int
		}{
			{"twelve", c.Collect12, 12},
			{"fourteen", c.Collect12, 12},
			{"three", c.Collect12, 3}, // parameters that the probe lacks are 0
			{"twelve", c.Collect3, 3},
			{"structure", c.Collect3, 3},
		} {
			one := c.attach(t, c.Collect, target, tc.probe, nil)
			other := c.attach(t, tc.prog, target, tc.probe, nil)
			process.Fire(tc.probe, 1)
			events := c.next(t, 2)
			if events[0].Program != 0 {
				events[0], events[1] = events[1], events[0]
			}
			want := events[0].Val
			clear(want[tc.reads:])
			qt.Check(t, qt.Equals(events[1].Val, want), qt.Commentf(tc.probe))
			qt.Assert(t, qt.IsNil(sys.CloseTogether([]*usdt.Link{one, other})))
		}
	})
}

// A stripped program has lost the symbols that some arguments name; its
// separate debug file has them.
func TestArgumentsWithSymbolsOfADebugFile(t *testing.T) {
	testneeds.Only(t, "compilers for other machines name no symbols in arguments", "amd64")
	c := newCollector(t, nil)
	process := testprog.Start(t, "target-stripped")
	target := usdt.Target{Path: testprog.Path(t, "target-stripped"), PID: process.PID}
	want := testprog.ExpectedProbe(machineOf(t, "target-stripped"), "globals")

	without := c.attach(t, c.Collect, target, "globals", nil)
	qt.Assert(t, qt.IsTrue(unavailable(without) > 0))
	qt.Assert(t, qt.IsNil(without.Close()))

	target.Symbols = func(file *elfnote.File) argspec.File {
		return debuginfo.AddDebugFile(file, testprog.Path(t, "target-stripped.debug"))
	}
	with := c.attach(t, c.Collect, target, "globals", nil)
	qt.Assert(t, qt.Equals(unavailable(with), 0))
	process.Fire("globals", 1)
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", process.PID))
	qt.Assert(t, qt.IsNil(err))
	defer memory.Close()
	event := c.next(t, 1)[0]
	checkArguments(t, "globals", memory, want.Hits[0], &event)
}
