// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

func TestAttachSkipsSitesThatCannotBeAttached(t *testing.T) {
	check := func(t *testing.T, c *collector, lnk *usdt.Link, process *testprog.Process) {
		t.Helper()
		qt.Assert(t, qt.Equals(lnk.Selection().Len(), 1))
		qt.Assert(t, qt.Equals(sitesOf(lnk.Selection())[0].Name, "three"))
		skipped, count := lnk.Selection().Skipped()
		qt.Assert(t, qt.Equals(count, 1))
		qt.Assert(t, qt.Equals(skipped[0].Name, "no_nop"))
		qt.Assert(t, qt.ErrorMatches(skipped[0], ".*: no nop there but .*"))
		process.Fire("three", 1)
		qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), process.PID))
	}
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		path, _ := copies(t, "target-pie")
		process := testprog.Start(t, path)

		lnk, err := c.Attach(c.Collect, usdt.Target{Path: path, PID: process.PID}, nil,
			patterns(t, "*:three", "*:no_nop")...)
		qt.Assert(t, qt.IsNil(err))
		check(t, c, lnk, process)
		qt.Assert(t, qt.IsNil(lnk.Close()))

		w, err := c.Watch(&watch.Options{
			Filter: only(path),
		}, nil, watching(t, c.Collect, "*:three", "*:no_nop")...)
		qt.Assert(t, qt.IsNil(err))
		defer w.Close()
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
		qt.Assert(t, qt.HasLen(w.Attachments(), 1))
		check(t, c, w.Attachments()[0].Link, process)
	})
}

func TestSelectSkipsSitesWithoutNop(t *testing.T) {
	path, _ := copies(t, "target-pie")
	patch(t, path, "split", []byte{0xff, 0xff, 0xff, 0xff}) // the first of two
	_, err := usdt.Select(usdt.Target{Path: path}, patterns(t, "*:no_nop")...)
	qt.Assert(t, qt.ErrorMatches(err, ".*: no nop there but .*"))

	sel, err := usdt.Select(usdt.Target{Path: path}, elfnote.Exact(provider, "split"))
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	qt.Assert(t, qt.Equals(sel.Len(), 1))
	_, count := sel.Skipped()
	qt.Assert(t, qt.Equals(count, 1))
}

// Attaching would succeed, and nothing would come.
func TestSelectRefusesWritableCode(t *testing.T) {
	path, _ := copies(t, "target-pie")
	testprog.MakeCodeWritable(t, path)
	_, err := usdt.Select(usdt.Target{Path: path}, patterns(t, "*:three")...)
	qt.Assert(t, qt.ErrorMatches(err, ".*: its code is in a writable segment .*"))
}

// The kernel takes one semaphore at an instruction.
func TestSelectSkipsASharedInstructionWithAnotherSemaphore(t *testing.T) {
	path, _ := copies(t, "target-pie")
	both := patterns(t, "*:guarded", "*:counted")
	sel, err := usdt.Select(usdt.Target{Path: path}, both...)
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	qt.Assert(t, qt.Equals(sel.Len(), 2))

	// Its note says that the second is where the first is.
	word := func(address uint64) []byte {
		b := make([]byte, 8)
		sel.File().Header().ByteOrder.PutUint64(b, address)
		return b
	}
	content, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	first, second := sitesOf(sel)[0], sitesOf(sel)[1]
	at := bytes.Index(content, append(word(second.Location), word(second.Base)...))
	qt.Assert(t, qt.IsTrue(at > 0))
	copy(content[at:], word(first.Location))
	qt.Assert(t, qt.IsNil(os.WriteFile(path, content, 0o755)))

	clash, err := usdt.Select(usdt.Target{Path: path}, both...)
	qt.Assert(t, qt.IsNil(err))
	defer clash.Close()
	qt.Assert(t, qt.Equals(clash.Len(), 1))
	skipped, count := clash.Skipped()
	qt.Assert(t, qt.Equals(count, 1))
	qt.Assert(t,
		qt.ErrorMatches(skipped[0],
			".*: the file has another probe at the same instruction with another semaphore.*"))

	// Each counts for both, whichever is selected.
	for _, pattern := range []string{"*:guarded", "*:counted", "*:three"} {
		one, err := usdt.Select(usdt.Target{Path: path}, patterns(t, pattern)...)
		qt.Assert(t, qt.IsNil(err))
		defer one.Close()
		for _, site := range one.Sites() {
			want := []string{provider + ":" + first.Name, provider + ":" + second.Name}
			if pattern == "*:three" {
				want = nil
			}
			qt.Check(t, qt.DeepEquals(site.SameInstruction, want))
		}
	}
}
