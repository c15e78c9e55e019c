// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// hide gives the notes of a probe another name of the same length.
func hide(t *testing.T, path, probe string) {
	t.Helper()
	content, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	note := []byte(provider + "\x00" + probe + "\x00")
	hidden := bytes.ReplaceAll(note, []byte(probe), bytes.Repeat([]byte("x"), len(probe)))
	qt.Assert(t, qt.IsTrue(bytes.Contains(content, note)))
	qt.Assert(t, qt.IsNil(os.WriteFile(path, bytes.ReplaceAll(content, note, hidden), 0o755)))
}

// watchTold starts a watch of these programs alone. told has its last changes.
func watchTold(t *testing.T, c *collector, programs []watchProgram, opts watch.Options,
	changed func(*watch.Changes[*watchAttachment]), paths ...string,
) (w *watched, told *watch.Changes[*watchAttachment]) {
	t.Helper()
	told = &watch.Changes[*watchAttachment]{}
	opts.Filter = only(paths...)
	opts.Patient = true // what takes long on a busy machine would be attached later
	toldToo := func(changes *watch.Changes[*watchAttachment]) {
		*told = *changes
		if changed != nil {
			changed(changes)
		}
	}
	w, err := c.Watch(&opts, toldToo, programs...)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { w.Close() })
	return w, told
}

// fires passes a probe and asserts which program of the collector sees it, with
// what cookie.
func (c *collector) fires(t *testing.T, process *testprog.Process, probe string,
	program testbpf.ArgsProgram, cookie uint64) {
	t.Helper()
	process.Fire(probe, 1)
	event := c.next(t, 1)[0]
	qt.Assert(t, qt.Equals(int(event.Pid), process.PID))
	qt.Assert(t, qt.Equals(testbpf.ArgsProgram(event.Program), program))
	qt.Assert(t, qt.Equals(event.Cookie, cookie))
	c.silent(t)
}

// always returns the options that each attachment of a program gets.
func always(opts usdt.AttachOptions) func(*proc.ProcessFile) usdt.AttachOptions {
	return func(*proc.ProcessFile) usdt.AttachOptions { return opts }
}

func programsOf(attachments []*watchAttachment) []*ebpf.Program {
	var programs []*ebpf.Program
	for _, a := range attachments {
		programs = append(programs, a.program)
	}
	return programs
}

// same reports whether these are the same attachments, in any order.
func same(a, b []*watchAttachment) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a,
		func(one *watchAttachment) bool { return !slices.Contains(b, one) })
}

func TestWatchAttachesSeveralProgramsEachToItsProbes(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		for name, perProcess := range map[string]bool{"per file": false, "per process": true} {
			t.Run(name, func(t *testing.T) {
				c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
				both, lacking := copies(t, "target-pie")
				hide(t, lacking, "guarded")
				one, two := testprog.Start(t, both), testprog.Start(t, lacking)
				programs := append(watching(t, c.Collect3, "*:guarded"),
					watching(t, c.Collect, "*:three", "*:no_nop")...)
				w, told := watchTold(t, c, programs, watch.Options{
					PerProcess: perProcess, Linger: -1,
				}, nil, both, lacking)
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
				qt.Assert(t, qt.HasLen(told.Errors, 0))
				qt.Assert(t, qt.IsTrue(slices.Equal(programsOf(told.Attached),
					[]*ebpf.Program{c.Collect3, c.Collect, c.Collect})),
					qt.Commentf("in the order of the programs, whatever that of the processes"))
				qt.Assert(t, qt.Equals(told.Attached[0].Path, both))
				for _, a := range told.Attached {
					names := map[*ebpf.Program]string{c.Collect3: "guarded", c.Collect: "three"}
					qt.Assert(t, qt.Equals(len(a.Link.Selection().Sites()), 1))
					qt.Assert(t, qt.Equals(a.Link.Selection().Sites()[0].Name, names[a.program]))
					unfit := map[*ebpf.Program]int{c.Collect: 1} // no_nop is of this program alone
					_, skipped := a.Link.Selection().Skipped()
					qt.Assert(t, qt.Equals(skipped, unfit[a.program]))
				}
				c.fires(t, one, "three", testbpf.ArgsProgramCOLLECT, 0)
				c.fires(t, two, "three", testbpf.ArgsProgramCOLLECT, 0)
				c.fires(t, one, "guarded", testbpf.ArgsProgramCOLLECT3, 0)
				two.Fire("guarded", 1)
				c.silent(t)

				one.Exec() // to other addresses
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), one.PID)))
				c.fires(t, one, "three", testbpf.ArgsProgramCOLLECT, 0)
				c.fires(t, one, "guarded", testbpf.ArgsProgramCOLLECT3, 0)

				two.Kill()
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
				qt.Assert(t, qt.HasLen(told.Detached, 1))
				qt.Assert(t, qt.IsNil(w.Close()))
				qt.Assert(t, qt.HasLen(told.Detached, 2),
					qt.Commentf("what is of a file is detached together"))
				qt.Assert(t, qt.HasLen(w.Attachments(), 0))
				one.Fire("three", 1)
				c.silent(t)
				qt.Assert(t, qt.Equals(one.Semaphore("guarded"), 0))
				used, _ := c.SpecsInUse()
				qt.Assert(t, qt.Equals(used, 0))
			})
		}
	})
}

func TestWatchTellsAttachmentsApartByCookies(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		first, second := copies(t, "target-pie")
		one, two := testprog.Start(t, first), testprog.Start(t, second)
		numbers := map[string]uint64{first: 1 << 40, second: 2 << 40}

		for _, perProcess := range []bool{false, true} {
			programs := append(watching(t, c.Collect, "*:three"),
				watching(t, c.Collect3, "*:none")...)
			programs[0].OptionsFor = func(pair *proc.ProcessFile) usdt.AttachOptions {
				if perProcess {
					return usdt.AttachOptions{Cookie: uint64(pair.Process.PID)}
				}
				return usdt.AttachOptions{Cookie: numbers[pair.Path]}
			}
			programs[1].OptionsFor = always(usdt.AttachOptions{Cookie: 7})
			w, told := watchTold(t, c, programs, watch.Options{PerProcess: perProcess}, nil, first,
				second)
			qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
			qt.Assert(t, qt.HasLen(told.Errors, 0))
			qt.Assert(t, qt.HasLen(told.Attached, 4))
			want := map[*testprog.Process]uint64{one: numbers[first], two: numbers[second]}
			if perProcess {
				want = map[*testprog.Process]uint64{one: uint64(one.PID), two: uint64(two.PID)}
			}
			for process, cookie := range want {
				c.fires(t, process, "three", testbpf.ArgsProgramCOLLECT, cookie)
				c.fires(t, process, "none", testbpf.ArgsProgramCOLLECT3, 7)
			}
			qt.Assert(t, qt.IsNil(w.Close()))
		}
	})
}

// One program may be there more than once, each time for other probes and with
// other options.
func TestWatchTellsProbesOfOneProgramApart(t *testing.T) {
	c := newCollector(t, nil)
	path, _ := copies(t, "target-static")
	process := testprog.Start(t, path)
	programs := append(watching(t, c.Collect, "*:three"), watching(t, c.Collect, "*:none")...)
	programs[0].OptionsFor = always(usdt.AttachOptions{Cookie: 3})
	programs[1].OptionsFor = always(usdt.AttachOptions{Cookie: 4})
	w, _ := watchTold(t, c, programs, watch.Options{}, nil, path)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	qt.Assert(t, qt.HasLen(w.Attachments(), 2))
	c.fires(t, process, "three", testbpf.ArgsProgramCOLLECT, 3)
	c.fires(t, process, "none", testbpf.ArgsProgramCOLLECT, 4)
}

func says(text string) func(error) bool {
	return func(err error) bool { return strings.Contains(err.Error(), text) }
}

func TestWatchAttachesTheOtherProgramsIfOneFails(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode, MaxSpecs: 1})
		path, _ := copies(t, "target-pie")
		process := testprog.Start(t, path)
		for name, tc := range map[string]struct {
			probe string
			want  func(error) bool
		}{
			"no site fit": {"gousdt_broken:no_nop", says("no nop there")},
			"no room":     {"gousdt_test:twelve", says("set ManagerOptions.MaxSpecs to")},
		} {
			t.Run(name, func(t *testing.T) {
				programs := append(watching(t, c.Collect, "*:three"),
					watching(t, c.Collect12, tc.probe)...)
				programs = append(programs, watching(t, c.Collect3, "*:three")...)
				w, told := watchTold(t, c, programs, watch.Options{}, nil, path)
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
				qt.Assert(t, qt.IsTrue(slices.Equal(programsOf(told.Attached),
					[]*ebpf.Program{c.Collect, c.Collect3})))
				qt.Assert(t, qt.HasLen(told.Errors, 1))
				var failed *watch.Error
				qt.Assert(t, qt.ErrorAs(told.Errors[0], &failed))
				qt.Assert(t, qt.Equals(failed.Path, path))
				qt.Assert(t, qt.Equals(failed.Process.PID, process.PID))
				qt.Assert(t,
					qt.ErrorMatches(failed, `collect12: attaching to .* in process \d+ \(.*\): .*`))
				qt.Assert(t, qt.IsTrue(tc.want(failed)))

				process.Fire("three", 1)
				events := c.next(t, 2)
				qt.Assert(t, qt.Equals(events[0].Program+events[1].Program,
					int32(testbpf.ArgsProgramCOLLECT3)))
				qt.Assert(t, qt.IsNil(w.Close()))
			})
		}
	})
}

func TestWatchLingersWithAllPrograms(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode, MaxSpecs: 2})
		first, second := copies(t, "target-static")
		programs := append(watching(t, c.Collect, "*:three"), watching(t, c.Collect3, "*:none")...)
		for i := range programs {
			programs[i].OptionsFor = func(pair *proc.ProcessFile) usdt.AttachOptions {
				// Other ones take other specs.
				return usdt.AttachOptions{Cookie: uint64(len(pair.Path)<<8 + i)}
			}
		}
		second += "-of-another-length"
		copyFile(t, second, first)
		var detached []*watchAttachment
		w, told := watchTold(t, c, programs, watch.Options{
			Linger: time.Hour,
		}, func(changes *watch.Changes[*watchAttachment]) {
			detached = append(detached,
				changes.Detached...)
		}, first, second)
		process := testprog.Start(t, first)
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
		qt.Assert(t, qt.HasLen(told.Attached, 2))
		attached := told.Attached
		process.Kill()
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))

		process = testprog.Start(t, first)
		cookie := uint64(len(first) << 8)
		c.fires(t, process, "three", testbpf.ArgsProgramCOLLECT, cookie) // before it is scanned
		c.fires(t, process, "none", testbpf.ArgsProgramCOLLECT3, cookie+1)
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
		qt.Assert(t, qt.IsTrue(same(w.Attachments(), attached)))
		process.Kill()
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))

		// The map is full: a lingering file makes room.
		process = testprog.Start(t, second)
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
		qt.Assert(t, qt.HasLen(told.Errors, 0))
		qt.Assert(t, qt.IsTrue(same(detached, attached)))
		qt.Assert(t, qt.HasLen(told.Attached, 2))
		cookie = uint64(len(second) << 8)
		c.fires(t, process, "three", testbpf.ArgsProgramCOLLECT, cookie)
		c.fires(t, process, "none", testbpf.ArgsProgramCOLLECT3, cookie+1)
	})
}

// A program that could not be attached to a lingering file is tried again with
// the file's next process.
func TestWatchTriesAgainWhatAFileLacks(t *testing.T) {
	c := newCollector(t, nil)
	path, _ := copies(t, "target-static")
	programs := append(watching(t, c.Collect, "*:three"), watching(t, c.Collect3, "*:many")...)
	manySpecs := true // more than there is room for altogether
	programs[1].OptionsFor = func(*proc.ProcessFile) (options usdt.AttachOptions) {
		if manySpecs {
			options.SiteCookie = func(site usdt.Site) uint64 { return site.Location }
		}
		return options
	}
	w, told := watchTold(t, c, programs, watch.Options{Linger: time.Hour}, nil, path)
	process := testprog.Start(t, path)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	qt.Assert(t, qt.HasLen(told.Errors, 1))
	qt.Assert(t, qt.HasLen(told.Attached, 1))
	first := told.Attached[0]
	process.Kill()
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))

	manySpecs = false
	process = testprog.Start(t, path)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	qt.Assert(t, qt.HasLen(told.Errors, 0))
	qt.Assert(t, qt.HasLen(told.Attached, 1))
	qt.Assert(t, qt.IsTrue(same(w.Attachments(), []*watchAttachment{first, told.Attached[0]})))
}

func TestWatchProgramWithoutPatterns(t *testing.T) {
	testneeds.Kernel(t, "6.6", "uprobe_multi links, without which detaching takes a minute")
	c := newCollector(t, &usdt.ManagerOptions{MaxSpecs: 2000})
	path, _ := copies(t, "target-static")
	process := testprog.Start(t, path)
	all, err := usdt.Select(usdt.Target{Path: path})
	qt.Assert(t, qt.IsNil(err))
	defer all.Close()
	programs := append(watching(t, c.Collect, "*:three"), watchProgram{Program: c.Collect3})
	w, told := watchTold(t, c, programs, watch.Options{}, nil, path)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	qt.Assert(t, qt.HasLen(told.Errors, 0))
	qt.Assert(t, qt.HasLen(told.Attached, 2))
	qt.Assert(t, qt.Equals(len(told.Attached[0].Link.Selection().Sites()), 1))
	qt.Assert(t, qt.Equals(len(told.Attached[1].Link.Selection().Sites()), len(all.Sites())))
}

func TestWatchRefusesWithoutAProgram(t *testing.T) {
	c, other := newCollector(t, nil), newCollector(t, nil)
	_, err := c.Watch(nil, nil)
	qt.Assert(t, qt.ErrorMatches(err, "a watch needs a part .*"))
	for _, program := range []*ebpf.Program{nil, other.Collect} {
		_, err = c.Watch(nil, nil, append(watching(t, c.Collect, "*"), watching(t, program, "*")...)...)
		qt.Assert(t,
			qt.ErrorMatches(err,
				`there is no program to attach: .*|program .* was loaded without .*`))
	}
}

func TestWatchCallsTheHandlerBetweenAttachingAndTelling(t *testing.T) {
	c := newCollector(t, nil)
	path, _ := copies(t, "target-static")
	process := testprog.Start(t, path)
	var order []string
	w, err := c.Watch(&watch.Options{
		Filter: only(path), Mapped: func(appeared, _ []*proc.ProcessFile) {
			if len(appeared) > 0 && len(c.Links()) > 0 {
				order = append(order, "handler")
			}
		},
	}, func(*watch.Changes[*watchAttachment]) { order = append(order, "changed") },
		watching(t, c.Collect, "*:three")...)
	qt.Assert(t, qt.IsNil(err))
	defer w.Close()
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	qt.Assert(t, qt.DeepEquals(order, []string{"handler", "changed"}))
}
