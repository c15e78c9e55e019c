// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/libbpf"
)

func TestAttachAgainAfterClose(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		process := testprog.Start(t, "target-pie")
		target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}

		process.Fire("three", 1)
		c.silent(t)
		for round := range 3 {
			lnk := c.attach(t, c.Collect, target, "three",
				&usdt.AttachOptions{Cookie: uint64(1 + round)})
			process.Fire("three", 2)
			for _, event := range c.next(t, 2) {
				qt.Assert(t, qt.Equals(event.Cookie, uint64(1+round)))
			}
			qt.Assert(t, qt.IsNil(lnk.Close()))
			qt.Assert(t, qt.IsNil(lnk.Close()))
			process.Fire("three", 1)
			c.silent(t)
		}
	})
}

func TestAttachWithCookies(t *testing.T) {
	// Known by its address alone, a site can have only one cookie: see
	// TestAttachTakesOneSpecForAnAddress.
	forEach(t, []usdt.Mode{usdt.ModeMulti, usdt.ModeSingle}, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		process := testprog.Start(t, "target-pie")
		target := usdt.Target{Path: testprog.Path(t, "target-pie")}
		cookies := []uint64{0, 7, 1<<64 - 1}
		for _, cookie := range cookies {
			c.attach(t, c.Collect, target, "three", &usdt.AttachOptions{Cookie: cookie})
		}
		process.Fire("three", 1)
		var got []uint64
		for _, event := range c.next(t, 3) {
			got = append(got, event.Cookie)
		}
		slices.Sort(got)
		qt.Assert(t, qt.DeepEquals(got, cookies))
	})
}

func TestAttachToAProcessWithAllItsThreads(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		path := testprog.Path(t, "target-pie")
		process, other := testprog.Start(t, "target-pie"), testprog.Start(t, "target-pie")
		c.attach(t, c.Collect, usdt.Target{Path: path, PID: process.PID}, "three", nil)

		other.Fire("three", 2)
		c.silent(t)
		want := append([]int{process.PID}, process.Thread("three", 3)...)
		process.Fire("three", 1)
		other.Thread("three", 1)
		process.Fork("three", 1) // a child is another process

		var got []int
		for _, event := range c.next(t, 4) {
			qt.Check(t, qt.Equals(int(event.Pid), process.PID))
			got = append(got, int(event.Tid))
		}
		c.silent(t)
		slices.Sort(got)
		slices.Sort(want)
		qt.Assert(t, qt.DeepEquals(got, want))
	})
}

func TestAttachToEveryProcess(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		// The only kind of file whose addresses are the same in every process.
		const program = "target-static"
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		before := testprog.Start(t, program)
		c.attach(t, c.Collect, usdt.Target{Path: testprog.Path(t, program)}, "three", nil)
		after := testprog.Start(t, program)

		before.Fire("three", 1)
		after.Fire("three", 1)
		events := c.next(t, 2)
		qt.Assert(t, qt.Equals(int(events[0].Pid), before.PID))
		qt.Assert(t, qt.Equals(int(events[1].Pid), after.PID))
		child := after.Fork("three", 1)
		qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), child))
		after.Exec()
		after.Fire("three", 1)
		qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), after.PID))
	})
}

func TestAttachCountsSemaphores(t *testing.T) {
	for _, program := range []struct{ file, run string }{{"target-pie", "target-pie"},
		{"target-static", "target-static"}, {"libtarget.so", "target-shared"}} {
		t.Run(program.run, func(t *testing.T) {
			forEachMode(t, func(t *testing.T, mode usdt.Mode) {
				c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
				process := testprog.Start(t, program.run)
				target := usdt.Target{Path: testprog.Path(t, program.file), PID: process.PID}

				qt.Assert(t, qt.Equals(process.Semaphore("guarded"), 0))
				process.Fire("guarded", 1)
				lnk := c.attach(t, c.Collect, target, "guarded", nil)
				qt.Assert(t, qt.DeepEquals(process.Semaphores("guarded"),
					semaphoresWhenAttached(t, process, lnk)))
				process.Fire("guarded", 1)
				c.next(t, 1)
				qt.Assert(t, qt.IsNil(lnk.Close()))
				qt.Assert(t, qt.Equals(process.Semaphore("guarded"), 0))

				// Each site has its own.
				lnk = c.attach(t, c.Collect, target, "split", nil)
				qt.Assert(t, qt.DeepEquals(process.Semaphores("split"),
					semaphoresWhenAttached(t, process, lnk)))
				qt.Assert(t, qt.IsNil(lnk.Close()))
				qt.Assert(t, qt.DeepEquals(process.Semaphores("split"), []int{0, 0}))
			})
		})
	}
}

// semaphoresWhenAttached returns the semaphores of the sites after one
// attachment: 1, except for sites on a page of the file that the linker let two
// segments share. The kernel counts once for each mapping of that page that
// could be made executable (VM_MAYEXEC) and is not writable.
func semaphoresWhenAttached(t *testing.T, process *testprog.Process, lnk *usdt.Link) []int {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", process.PID))
	qt.Assert(t, qt.IsNil(err))
	path := lnk.Selection().Name()
	counts := make([]int, len(lnk.Selection().Sites()))
	for line := range strings.Lines(string(maps)) {
		var start, end, offset uint64
		var permissions string
		_, err := fmt.Sscanf(line, "%x-%x %s %x", &start, &end, &permissions, &offset)
		qt.Assert(t, qt.IsNil(err))
		if !strings.HasSuffix(strings.TrimSpace(line),
			"/"+filepath.Base(path)) || permissions[1] == 'w' {
			continue
		}
		for i, site := range lnk.Selection().Sites() {
			if site.Offset >= offset && site.Offset < offset+end-start {
				counts[i]++
			}
		}
	}
	return counts
}

func TestAttachToAllFormsOfTargets(t *testing.T) {
	path := testprog.Path(t, "target-shared")
	library := testprog.Path(t, "libtarget.so")
	c := newCollector(t, nil)

	parsed, err := elfnote.Open(library)
	qt.Assert(t, qt.IsNil(err))
	defer parsed.Close()

	// A copy that is deleted while it runs, and a relative path.
	directory := t.TempDir()
	deleted := filepath.Join(directory, "deleted")
	copyFile(t, deleted, testprog.Path(t, "target-static"))
	open, err := os.Open(deleted)
	qt.Assert(t, qt.IsNil(err))
	defer open.Close()
	ofOpen, err := elfnote.NewFile(open)
	qt.Assert(t, qt.IsNil(err))
	ofDeleted := testprog.Start(t, deleted)
	qt.Assert(t, qt.IsNil(os.Remove(deleted)))

	wd, err := os.Getwd()
	qt.Assert(t, qt.IsNil(err))
	relative, err := filepath.Rel(wd, library)
	qt.Assert(t, qt.IsNil(err))

	process := testprog.Start(t, path)
	for _, tc := range []struct {
		name    string
		target  usdt.Target
		process *testprog.Process
	}{
		{"absolute path", usdt.Target{Path: library}, process},
		{"relative path", usdt.Target{Path: relative, PID: process.PID}, process},
		{"open file", usdt.Target{ELF: ofOpen}, ofDeleted},
		{"parsed file", usdt.Target{ELF: parsed}, process},
		{"name of a library that the process has mapped",
			usdt.Target{Path: "libtarget.so", PID: process.PID}, process},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lnk := c.attach(t, c.Collect, tc.target, "three", nil)
			if tc.target.PID != 0 && !strings.Contains(tc.target.Path, "/") &&
				tc.target.Path != "" {
				// The name is not the path by which the file was opened.
				qt.Check(t, qt.Equals(lnk.Selection().Name(), library))
			}
			tc.process.Fire("three", 1)
			qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), tc.process.PID))
			qt.Assert(t, qt.IsNil(lnk.Close()))
		})
	}

	// A file that the caller has opened stays open.
	_, err = open.Stat()
	qt.Assert(t, qt.IsNil(err))
	_, err = elffile.OSFile(parsed).ReadAt(make([]byte, 4), 0)
	qt.Assert(t, qt.IsNil(err))
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	source, err := os.Open(from)
	qt.Assert(t, qt.IsNil(err))
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	qt.Assert(t, qt.IsNil(err))
	_, err = io.Copy(target, source)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(target.Close()))
}

func TestAttachSections(t *testing.T) {
	testprog.RequireBPF(t)
	path := testprog.Path(t, "target-pie")
	process := testprog.Start(t, "target-pie")

	type objects struct {
		First  *ebpf.Program `ebpf:"count"`
		Second *ebpf.Program `ebpf:"count_bare"`
		None   *ebpf.Program `ebpf:"none"`
		Hits   *ebpf.Map     `ebpf:"hits"`
	}
	load := func(t *testing.T, second string) (*usdt.Manager, *ebpf.CollectionSpec, *objects) {
		spec, err := testbpf.LoadCounts()
		qt.Assert(t, qt.IsNil(err))
		// names no probe, so it is not attached
		spec.Programs["none"] = spec.Programs["count_bare"].Copy()
		spec.Programs["count"].SectionName = "usdt/" + path + ":" + provider + ":three"
		spec.Programs["count_bare"].SectionName = "usdt/" + path + ":" + provider + ":" + second
		mgr, err := usdt.NewManager(spec, nil)
		qt.Assert(t, qt.IsNil(err))
		t.Cleanup(func() { mgr.Close() })
		objs := &objects{}
		qt.Assert(t, qt.IsNil(spec.LoadAndAssign(objs, mgr.CollectionOptions())))
		t.Cleanup(func() {
			for _, object := range []io.Closer{objs.First, objs.Second, objs.None, objs.Hits} {
				object.Close()
			}
			*objs = objects{}
		})
		return mgr, spec, objs
	}
	// hits of the programs count and count_bare, which knows no threads
	hits := func(t *testing.T, objs *objects) (hits [2]uint64) {
		var hit testbpf.CountsHit
		var count uint64
		entries := objs.Hits.Iterate()
		for entries.Next(&hit, &count) {
			if hit.Tid != 0 {
				hits[0] += count
			} else {
				hits[1] += count
			}
		}
		qt.Assert(t, qt.IsNil(entries.Err()))
		return hits
	}

	testprog.LeakCheck(t)
	t.Run("all at once", func(t *testing.T) {
		mgr, spec, objs := load(t, "twelve")
		links, err := libbpf.AttachSections(mgr, spec, objs, usdt.Target{PID: process.PID}, nil)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(links, 2))
		process.Fire("three", 1)
		process.Fire("twelve", 2)
		qt.Assert(t, qt.Equals(hits(t, objs), [2]uint64{1, 2}))
	})

	t.Run("all or nothing", func(t *testing.T) {
		mgr, spec, objs := load(t, "twelfe")
		_, err := libbpf.AttachSections(mgr, spec, objs, usdt.Target{PID: process.PID}, nil)
		qt.Assert(t,
			qt.ErrorMatches(err,
				`program count_bare: .*no probe matches gousdt_test:twelfe`))
		process.Fire("three", 1)
		qt.Assert(t, qt.Equals(hits(t, objs), [2]uint64{}))
		used, _ := mgr.SpecsInUse()
		qt.Assert(t, qt.Equals(used, 0))
	})

	t.Run("without leases", func(t *testing.T) {
		path, _ = copies(t, "target-static")
		mgr, spec, objs := load(t, "twelve")
		// It is detached some time after the writer has opened the file.
		testneeds.Await(t, 20*time.Second, "the writer does not wait", func() bool {
			links, err := libbpf.AttachSections(mgr, spec, objs, usdt.Target{NoLease: true}, nil)
			qt.Assert(t, qt.IsNil(err))
			writer, err := os.OpenFile(path, os.O_RDWR, 0)
			qt.Assert(t, qt.IsNil(err))
			defer writer.Close()
			isAttached := true
			for _, lnk := range links {
				isAttached = isAttached && lnk.Err() == nil
				qt.Check(t, qt.IsNil(lnk.Close()))
			}
			return isAttached
		})
		_, err := libbpf.AttachSections(mgr, spec, objs, usdt.Target{Path: path}, nil)
		qt.Check(t, qt.ErrorMatches(err, "the sections name the files: set none in the target"))
	})
}

func TestAttachSleepablePrograms(t *testing.T) {
	testneeds.Kernel(t, "6.0", "sleepable programs on uprobes")
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		spec, err := testbpf.LoadArgs()
		qt.Assert(t, qt.IsNil(err))
		spec.Programs["text3"].Flags |= unix.BPF_F_SLEEPABLE
		mgr, err := usdt.NewManager(spec, &usdt.ManagerOptions{Mode: mode})
		qt.Assert(t, qt.IsNil(err))
		defer mgr.Close()
		var objs textObjects
		qt.Assert(t, qt.IsNil(spec.LoadAndAssign(&objs, mgr.CollectionOptions())))
		defer objs.Text3.Close()
		defer objs.Texts.Close()
		reader, err := ringbuf.NewReader(objs.Texts)
		qt.Assert(t, qt.IsNil(err))
		defer reader.Close()

		process := testprog.Start(t, "target-pie")
		probe := testprog.ExpectedProbe(machineOf(t, "target-pie"), "strings")
		_, err = mgr.Attach(objs.Text3, usdt.Target{Path: testprog.Path(t, "target-pie"),
			PID: process.PID}, nil, elfnote.Exact(provider, "strings"))
		qt.Assert(t, qt.IsNil(err))
		process.Fire("strings", 1)

		texts := &texts{reader: reader}
		qt.Assert(t, qt.Equals(texts.next(t).text, probe.Hits[0][0].Text))
	})
}

func TestAttachWithUnavailableArguments(t *testing.T) {
	c := newCollector(t, nil)
	process := testprog.Start(t, "target-pie")
	target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
	lnk := c.attach(t, c.Collect, target, "structure", nil)
	args := lnk.Selection().Sites()[0].Args
	qt.Assert(t, qt.Equals(unavailable(lnk), 2))
	qt.Assert(t, qt.IsNotNil(args[1].Err))
	qt.Assert(t, qt.IsNotNil(args[2].Err))
	process.Fire("structure", 1)
	c.next(t, 1)
}

// The whole of a libjvm is 500 probes; here one program is attached to all
// probes of a file by one link.
func TestAttachManyProbesByOneLink(t *testing.T) {
	testneeds.Kernel(t, "6.6", "uprobe_multi links")
	c := newCollector(t, &usdt.ManagerOptions{MaxSpecs: 1024})
	process := testprog.Start(t, "target-pie")
	lnk, err := c.Attach(c.Collect3, usdt.Target{Path: testprog.Path(t, "target-pie"),
		PID: process.PID}, nil,
		elfnote.MustParsePattern(provider+":*"))
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsTrue(len(lnk.Selection().Sites()) > 700),
		qt.Commentf("%d sites", len(lnk.Selection().Sites())))
	process.Fire("many", 1)
	for _, event := range c.next(t, 400) {
		qt.Assert(t, qt.Equals(event.Val[0], 42))
	}
}

func TestArgumentsThatAreStrings(t *testing.T) {
	testprog.RequireBPF(t)
	texts := newTexts(t)
	process := testprog.Start(t, "target-pie")
	texts.attach(t, usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}, provider,
		"strings")
	process.Fire("strings", 1)
	probe := testprog.ExpectedProbe(machineOf(t, "target-pie"), "strings")
	qt.Assert(t, qt.Equals(texts.next(t).text, probe.Hits[0][0].Text))
}

// texts collects events of the program text3.
type texts struct {
	*usdt.Manager
	textObjects
	reader *ringbuf.Reader
}

type textObjects struct {
	Text3 *ebpf.Program `ebpf:"text3"`
	Texts *ebpf.Map     `ebpf:"texts"`
}

type textEvent struct {
	pid           int
	text          string
	second, third int64
}

func newTexts(t *testing.T) *texts {
	t.Helper()
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	spec, err := testbpf.LoadArgs()
	qt.Assert(t, qt.IsNil(err))
	x := &texts{}
	x.Manager, err = usdt.NewManager(spec, nil)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { x.Manager.Close() })
	load(t, spec, &x.textObjects, x.CollectionOptions())
	t.Cleanup(func() {
		x.Text3.Close()
		x.Texts.Close()
		x.textObjects = textObjects{}
	})
	x.reader, err = ringbuf.NewReader(x.Texts)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { x.reader.Close() })
	return x
}

func (x *texts) attach(t *testing.T, target usdt.Target, provider, name string) *usdt.Link {
	t.Helper()
	lnk, err := x.Manager.Attach(x.Text3, target, nil, elfnote.Exact(provider, name))
	qt.Assert(t, qt.IsNil(err))
	return lnk
}

func (x *texts) next(t *testing.T) textEvent {
	t.Helper()
	x.reader.SetDeadline(time.Now().Add(testneeds.Patience(10 * time.Second)))
	record, err := x.reader.Read()
	qt.Assert(t, qt.IsNil(err))
	var raw testbpf.ArgsText
	qt.Assert(t,
		qt.IsNil(binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian, &raw)))
	qt.Assert(t, qt.IsTrue(raw.Length >= 0),
		qt.Commentf("reading the string: error %d", raw.Length))
	text := make([]byte, 0, len(raw.String))
	for _, c := range raw.String[:max(raw.Length-1, 0)] {
		text = append(text, byte(c))
	}
	return textEvent{int(raw.Pid), string(text), raw.Second, raw.Third}
}
