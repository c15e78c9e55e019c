// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/specialise"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// reporter is a Manager with the programs that report every hit.
type reporter struct {
	*Manager
	testbpf.ArgsObjects
	events *ringbuf.Reader
}

func newReporter(t testing.TB, opts *ManagerOptions) *reporter {
	t.Helper()
	spec, err := testbpf.LoadArgs()
	qt.Assert(t, qt.IsNil(err))
	r := &reporter{}
	r.Manager, err = NewManager(spec, opts)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { r.Manager.Close() })
	qt.Assert(t, qt.IsNil(spec.LoadAndAssign(&r.ArgsObjects, r.CollectionOptions())))
	t.Cleanup(func() { r.ArgsObjects.Close() })
	r.events, err = ringbuf.NewReader(r.Events)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { r.events.Close() })
	return r
}

// take returns the events that have come, by program and cookie.
func (r *reporter) take(t testing.TB) map[string]testbpf.ArgsEvent {
	t.Helper()
	taken := make(map[string]testbpf.ArgsEvent)
	for r.events.AvailableBytes() > 0 {
		r.events.SetDeadline(time.Now().Add(testneeds.Patience(10 * time.Second)))
		record, err := r.events.Read()
		qt.Assert(t, qt.IsNil(err))
		var event testbpf.ArgsEvent
		qt.Assert(t, qt.IsNil(binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian,
			&event)))
		taken[fmt.Sprintf("program %d, site %d", event.Program, event.Cookie)] = event
	}
	return taken
}

// randomArguments returns an argument string of any form.
func randomArguments(random *rand.Rand) string {
	words := strings.Fields("%rax %rbx %rcx %rdx %rsi %rdi %rbp %rsp %r8 %r9 %r10 %r11 %r12 %r13 %r14 %r15")
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	// Mostly memory at the stack, which is there.
	base := pick(append(words, "%rsp", "%rsp", "%rsp", "%rsp", "%rsp", "%rsp", "%rsp", "%rsp",
		"%rsp", "%rsp"))
	var all []string
	for range random.IntN(14) {
		size := pick(strings.Fields("1 -1 2 -2 4 -4 8 -8 4f 8f 8 -8 -4 16"))
		displacement := random.IntN(200) - 60
		if random.IntN(3) > 0 {
			displacement &^= 7
		}
		switch random.IntN(8) {
		case 0:
			all = append(all, fmt.Sprintf("%s@$%d", size, int64(random.Uint64()>>random.IntN(64))))
		case 1:
			all = append(all, size+"@"+pick(words))
		case 2:
			all = append(all,
				pick([]string{"1", "-1"})+"@"+pick(strings.Fields("%ah %bh %ch %dh %al %r9b")))
		case 3:
			all = append(all, fmt.Sprintf("%s@%d(%s,%s,%s)", size, displacement, base, pick(words),
				pick(strings.Fields("1 2 4 8"))))
		case 4:
			all = append(all, size+"@"+pick([]string{"%eax", "%xmm0", "16(%eip)", "16(%rip)",
				"(%esp)", "nonsense"}))
		default:
			all = append(all, fmt.Sprintf("%s@%d(%s)", size, displacement, base))
		}
	}
	return strings.Join(all, " ")
}

// compareRandom attaches the programs as they are and as they are specialised,
// at sites with made-up arguments, and compares what they read.
func compareRandom(t testing.TB, generic, special *reporter, process *testprog.Process, path string,
	random *rand.Rand) {
	t.Helper()
	sel, err := Select(Target{Path: path, PID: process.PID},
		elfnote.Exact("gousdt_test", "specs"))
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	sites := random.Perm(sel.Len())[:1+random.IntN(specialise.MaxSpecs)]
	subset := sel.Subset(sites)
	for i := range subset.sites {
		site := &subset.sites[i]
		site.Arguments = randomArguments(random)
		site.Args = argspec.Parse(subset.machine, site.Arguments)
	}
	var links []*Link
	defer func() { qt.Check(t, qt.IsNil(sys.CloseTogether(links))) }()
	for _, r := range []*reporter{generic, special} {
		for _, prog := range []*ebpf.Program{r.Collect, r.Collect3, r.Collect12} {
			n := uint64(0)
			lnk, err := r.Attach(prog, Target{Selection: subset},
				&AttachOptions{SiteCookie: func(Site) uint64 { n++; return n - 1 }})
			qt.Assert(t, qt.IsNil(err))
			links = append(links, lnk)
			_, reason := lnk.Specialised()
			// The others read all by BPF_USDT.
			qt.Assert(t, qt.Equals(reason == "", r == special && prog == r.Collect),
				qt.Commentf("%s", reason))
		}
	}
	process.Fire("specs", 1)
	want, got := generic.take(t), special.take(t)
	qt.Assert(t, qt.HasLen(want, 3*len(sites)))
	for key, event := range want {
		qt.Check(t, qt.Equals(got[key], event), qt.Commentf("%s of %s", key,
			subset.sites[event.Cookie].Arguments))
	}
}

func twoReporters(
	t testing.TB,
) (generic, special *reporter, process *testprog.Process, path string) {
	testneeds.Only(t, "the argument strings are made up for x86-64", "amd64")
	testprog.RequireBPF(t)
	_, err := ModeMulti.Resolve()
	testneeds.Feature(t, "6.6", ModeMulti.String(), err)
	path = testprog.Path(t, "target-pie")
	generic = newReporter(t, &ManagerOptions{Mode: ModeMulti})
	special = newReporter(t, &ManagerOptions{Mode: ModeMulti, Specialise: true})
	return generic, special, testprog.Start(t, "target-pie"), path
}

func TestSpecialisedProgramsReadAnyArgumentsTheSame(t *testing.T) {
	generic, special, process, path := twoReporters(t)
	random := rand.New(rand.NewPCG(31, 32))
	for range testprog.Soak(15, 40) {
		compareRandom(t, generic, special, process, path, random)
	}
}

// Links share a program that is made for equal specs, as long as one of them
// needs it.
func TestSpecialisedProgramsAreShared(t *testing.T) {
	_, special, process, path := twoReporters(t)
	attach := func(prog *ebpf.Program, probe string, cookie uint64) *Link {
		lnk, err := special.Attach(prog, Target{Path: path, PID: process.PID},
			&AttachOptions{Cookie: cookie}, elfnote.Exact("gousdt_test", probe))
		qt.Assert(t, qt.IsNil(err))
		_, reason := lnk.Specialised()
		qt.Assert(t, qt.Equals(reason, ""))
		return lnk
	}
	made := func() int { return len(special.special) }
	first := attach(special.Collect, "three", 1)
	qt.Check(t, qt.Equals(made(), 1))
	again := attach(special.Collect, "three", 1)
	qt.Check(t, qt.Equals(made(), 1))
	links := []*Link{attach(special.Collect, "three", 2), attach(special.Collect, "twelve", 1)}
	qt.Check(t, qt.Equals(made(), 3))
	qt.Assert(t, qt.IsNil(first.Close()))
	qt.Check(t, qt.Equals(made(), 3))
	process.Fire("three", 1)
	qt.Check(t, qt.HasLen(special.take(t), 2))
	qt.Assert(t, qt.IsNil(sys.CloseTogether(append(links, again))))
	qt.Check(t, qt.Equals(made(), 0))
}

// Goroutines that attach at the same time share programs, and each gets the
// hits of its own probe.
func TestSpecialisedProgramsAttachedAtATime(t *testing.T) {
	_, special, process, path := twoReporters(t)
	probes := []string{"three", "twelve", "narrow", "stack"}
	links := make([]*Link, 16)
	for range 5 {
		var wait sync.WaitGroup
		for i := range links {
			wait.Go(func() {
				// Two with each probe and cookie.
				probe, cookie := probes[i%len(probes)], uint64(i/2/len(probes))
				var err error
				links[i], err = special.Attach(special.Collect,
					Target{Path: path, PID: process.PID},
					&AttachOptions{Cookie: cookie*100 + uint64(i%len(probes))},
					elfnote.Exact("gousdt_test", probe))
				if qt.Check(t, qt.IsNil(err)) {
					_, reason := links[i].Specialised()
					qt.Check(t, qt.Equals(reason, ""))
				}
			})
		}
		wait.Wait()
		qt.Assert(t, qt.IsFalse(t.Failed()))
		qt.Check(t, qt.HasLen(special.special, 8))
		for i, probe := range probes {
			process.Fire(probe, 1)
			taken := special.take(t)
			qt.Check(t, qt.HasLen(taken, 2))
			for _, cookie := range []int{i, 100 + i} {
				event := taken[fmt.Sprintf("program 0, site %d", cookie)]
				want := testprog.ExpectedProbe(elf.EM_X86_64, probe).Hits[0][0]
				qt.Check(t, qt.Equals(uint64(event.Val[0]), want.Value), qt.Commentf("%s", probe))
			}
		}
		for _, lnk := range links {
			wait.Go(func() { qt.Check(t, qt.IsNil(lnk.Close())) })
		}
		wait.Wait()
		qt.Check(t, qt.HasLen(special.special, 0))
		used, _ := special.SpecsInUse()
		qt.Check(t, qt.Equals(used, 0))
	}
}

func FuzzSpecialisedPrograms(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		generic, special, process, path := twoReporters(t)
		compareRandom(t, generic, special, process, path, rand.New(rand.NewPCG(seed, 0)))
	})
}

// Loaded maps that cannot be kept are closed: an error means that nothing was
// assigned.
func TestLoadAndAssignIsAllOrNothing(t *testing.T) {
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	spec, err := testbpf.LoadArgs()
	qt.Assert(t, qt.IsNil(err))
	mgr, err := NewManager(spec, &ManagerOptions{Specialise: true})
	qt.Assert(t, qt.IsNil(err))
	defer mgr.Close()
	mgr.closed = true // as by a Close meanwhile
	var objs testbpf.ArgsObjects
	err = mgr.LoadAndAssign(&objs, nil)
	qt.Assert(t, qt.ErrorIs(err, os.ErrClosed))
	qt.Check(t, qt.Equals(objs, testbpf.ArgsObjects{}))
}
