// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// twoCollectors returns the programs as they are and as they are specialised.
type twoCollectors struct {
	generic, special *collector
	libbpf           bool
}

func (two *twoCollectors) programs() [][2]*ebpf.Program {
	g, s := two.generic, two.special
	return [][2]*ebpf.Program{{g.Collect, s.Collect}, {g.Collect3, s.Collect3},
		{g.Collect12, s.Collect12}}
}

// forEachSpecialiser runs a test with objects of each header, where programs
// can be specialised.
func forEachSpecialiser(t *testing.T, test func(t *testing.T, two *twoCollectors)) {
	testprog.RequireBPF(t)
	needsCookies(t)
	forEach(t, []usdt.Mode{usdt.ModeMulti, usdt.ModeSingle}, func(t *testing.T, mode usdt.Mode) {
		generic := &usdt.ManagerOptions{Mode: mode, MaxSpecs: 1024}
		special := &usdt.ManagerOptions{Mode: mode, MaxSpecs: 1024, Specialise: true}
		t.Run("gousdt", func(t *testing.T) {
			test(t, &twoCollectors{newCollector(t, generic), newCollector(t, special), false})
		})
		if mode != usdt.ModeMulti {
			return // the header is the same in all modes
		}
		forEachHeader(t, func(t *testing.T, header libbpfHeader) {
			test(t, &twoCollectors{newLibbpfCollector(t, header, generic),
				newLibbpfCollector(t, header, special), true})
		})
	})
}

// A specialised program reads the same of any arguments as the program itself,
// which other tests compare with the truth.
func TestSpecialisedProgramsReadTheSame(t *testing.T) {
	forEachSpecialiser(t, func(t *testing.T, two *twoCollectors) {
		for i, prog := range programs {
			if i > 0 && (two.libbpf || two.generic.Mode() == usdt.ModeSingle && testprog.Soak(1, 0) > 0) {
				continue // the arguments are the same, and it takes long
			}
			t.Run(prog.name, func(t *testing.T) {
				two.compareEverywhere(t, testprog.Path(t, prog.file), testprog.Start(t, prog.run),
					i == 0)
			})
		}
	})
}

func TestSpecialisedProgramsReadTheSameOf32BitPrograms(t *testing.T) {
	testneeds.Only(t, "no other kernel here runs programs of 32 bits", "amd64")
	forEachSpecialiser(t, func(t *testing.T, two *twoCollectors) {
		path := testprog.CrossPath(t, "386", "target-pie")
		two.compareEverywhere(t, path, testprog.Start(t, path), true)
	})
}

// compareEverywhere attaches both to the probes of a file, one by one and
// several at a time.
func (two *twoCollectors) compareEverywhere(t *testing.T, path string, process *testprog.Process,
	alone bool) {
	file, err := elfnote.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	var groups []string
	patterns := make(map[string][]elfnote.Pattern)
	for _, probe := range expectedIn(t, file, two.generic.Mode()) {
		if probe.Sites > 20 || two.generic.Mode() == usdt.ModeSingle && probe.Sites > 3 {
			continue
		}
		if patterns[probe.Group] == nil {
			groups = append(groups, probe.Group)
		}
		patterns[probe.Group] = append(patterns[probe.Group],
			elfnote.Exact(probe.Provider, probe.Name))
	}
	together := 10
	if two.generic.Mode() == usdt.ModeSingle {
		// A single link takes a tenth of a second to close.
		groups, together = groups[:6], 6
	} else if alone {
		for _, group := range groups {
			two.compare(t, usdt.Target{ELF: file, PID: process.PID}, process,
				[]string{group}, patterns)
		}
	}
	for chunk := range slices.Chunk(groups, together) {
		two.compare(t, usdt.Target{ELF: file, PID: process.PID}, process, chunk, patterns)
	}
}

func (two *twoCollectors) compare(
	t *testing.T, target usdt.Target, process *testprog.Process, groups []string,
	patterns map[string][]elfnote.Pattern,
) {
	t.Helper()
	var all []elfnote.Pattern
	for _, group := range groups {
		all = append(all, patterns[group]...)
	}
	var links []*usdt.Link
	for n, pair := range two.programs() {
		for i, c := range []*collector{two.generic, two.special} {
			lnk, err := c.Attach(pair[i], target, &usdt.AttachOptions{Cookie: 7}, all...)
			qt.Assert(t, qt.IsNil(err))
			links = append(links, lnk)
			specialised, reason := lnk.Specialised()
			if i == 0 {
				qt.Check(t, qt.IsFalse(specialised))
				qt.Check(t, qt.Equals(reason, "ManagerOptions.Specialise is not set"))
			} else if n > 0 && !two.libbpf { // it reads all by BPF_USDT
				qt.Check(t, qt.Matches(reason, "its sites have more than 16 specs, .*|"+
					"it does not call bpf_usdt_arg .*"), qt.Commentf("%v", all))
			} else if !specialised {
				qt.Check(t, qt.Matches(reason, "its sites have more than 16 specs, .*"),
					qt.Commentf("%v", all))
			}
		}
	}
	for _, group := range groups {
		process.Fire(group, 1)
	}
	wanted := two.generic.all(t)
	qt.Check(t, qt.IsTrue(len(wanted) >= 3*len(groups)))
	got := two.special.next(t, len(wanted))
	two.special.silent(t)
	for program := range int32(3) {
		of := func(events []testbpf.ArgsEvent) (mine []testbpf.ArgsEvent) {
			for _, event := range events {
				if event.Program == program {
					mine = append(mine, event)
				}
			}
			return mine
		}
		wanted, got := of(wanted), of(got)
		qt.Assert(t, qt.HasLen(got, len(wanted)))
		for i := range wanted {
			for n := range wanted[i].Val {
				if slices.Contains(groups, "page_end") && wanted[i].Val[n] == 0 &&
					got[i].Err[n] == 0 {
					// libbpf's header reads eight bytes, of which some are not
					// there.
					wanted[i].Err[n], wanted[i].Val[n] = 0, got[i].Val[n]
				}
			}
			qt.Check(t, qt.Equals(got[i], wanted[i]), qt.Commentf("%v", groups))
		}
	}
	qt.Assert(t, qt.IsNil(sys.CloseTogether(links)))
}

func TestSpecialisedSaysWhyNot(t *testing.T) {
	testprog.RequireBPF(t)
	process := testprog.Start(t, "target-pie")
	target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
	check := func(t *testing.T, lnk *usdt.Link, err error, want string) {
		t.Helper()
		qt.Assert(t, qt.IsNil(err))
		specialised, reason := lnk.Specialised()
		qt.Check(t, qt.IsFalse(specialised))
		qt.Check(t, qt.Matches(reason, want))
		qt.Assert(t, qt.IsNil(lnk.Close()))
	}
	t.Run("without cookies", func(t *testing.T) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: usdt.ModeSingleIPMap, Specialise: true})
		lnk, err := c.Attach(c.Collect, target, nil, elfnote.Exact(provider, "three"))
		check(t, lnk, err, `programs have no BPF cookie in mode single\+ip`)
	})
	needsCookies(t)
	t.Run("no arguments read", func(t *testing.T) {
		spec, err := testbpf.LoadCounts()
		qt.Assert(t, qt.IsNil(err))
		mgr, collection := manage(t, spec, &usdt.ManagerOptions{Specialise: true})
		for _, prog := range collection.Programs {
			lnk, err := mgr.Attach(prog, target, nil, elfnote.Exact(provider, "three"))
			check(t, lnk, err,
				"the program reads no arguments|it does not call bpf_usdt_arg of usdt.bpf.h .*")
		}
	})
	t.Run("static functions", func(t *testing.T) {
		spec, err := testbpf.LoadArgs()
		qt.Assert(t, qt.IsNil(err))
		for _, program := range spec.Programs {
			for i := range program.Instructions {
				if f := btf.FuncMetadata(&program.Instructions[i]); f != nil &&
					f.Name != program.Name {
					f.Linkage = btf.StaticFunc
				}
			}
		}
		mgr, collection := manage(t, spec, &usdt.ManagerOptions{Specialise: true})
		lnk, err := mgr.Attach(collection.Programs["collect"], target, nil,
			elfnote.Exact(provider, "three"))
		check(t, lnk, err, "the function bpf_usdt_arg is static, so that .*")
	})
	t.Run("changed program", func(t *testing.T) {
		spec, err := testbpf.LoadArgs()
		qt.Assert(t, qt.IsNil(err))
		mgr, collection := manage(t, spec, &usdt.ManagerOptions{Specialise: true})
		program := spec.Programs["collect"]
		program.Instructions = append(asm.Instructions{program.Instructions[0],
			asm.Mov.Imm(asm.R0, 1)}, program.Instructions[1:]...)
		lnk, err := mgr.Attach(collection.Programs["collect"], target, nil,
			elfnote.Exact(provider, "three"))
		check(t, lnk, err, "the program in the collection is not the one that was loaded")
	})
}

// all returns the events that have come.
func (c *collector) all(t *testing.T) []testbpf.ArgsEvent {
	t.Helper()
	var events []testbpf.ArgsEvent
	for c.events.AvailableBytes() > 0 {
		events = append(events, c.next(t, 1)...)
	}
	return events
}

// A lack of descriptors for a moment is not taken for a refusal of the program.
func TestSpecialisedAfterALackOfDescriptors(t *testing.T) {
	testprog.RequireBPF(t)
	needsCookies(t)
	c := newCollector(t, &usdt.ManagerOptions{Specialise: true})
	target := usdt.Target{Path: testprog.Path(t, "target-pie")}
	attach := func(name string) (reason string) {
		lnk, err := c.Manager.Attach(c.Collect, target, nil, elfnote.Exact(provider, name))
		if err != nil {
			return err.Error()
		}
		_, reason = lnk.Specialised()
		qt.Check(t, qt.IsNil(lnk.Close()))
		return reason
	}
	var usual unix.Rlimit
	qt.Assert(t, qt.IsNil(unix.Getrlimit(unix.RLIMIT_NOFILE, &usual)))
	free, err := unix.FcntlInt(os.Stdin.Fd(), unix.F_DUPFD_CLOEXEC, 0) // the lowest
	qt.Assert(t, qt.IsNil(err))
	unix.Close(free)
	loading := 0
	for few := range 16 {
		limit := unix.Rlimit{Cur: uint64(free + few), Max: usual.Max}
		qt.Assert(t, qt.IsNil(unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)))
		reason := attach("three")
		qt.Assert(t, qt.IsNil(unix.Setrlimit(unix.RLIMIT_NOFILE, &usual)))
		if strings.Contains(reason, "loading the program") {
			loading++
		}
		qt.Assert(t, qt.Equals(attach("three"), ""), qt.Commentf("after %q", reason))
	}
	qt.Check(t, qt.IsTrue(loading > 0))
}
