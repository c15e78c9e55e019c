// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package watch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// startOf starts a process of a user.
func (w *world) startOf(user, pid int, files ...string) {
	w.t.Helper()
	w.start(pid, files...)
	w.write(fmt.Sprint(pid, "/cgroup"),
		fmt.Sprintf("0::/user.slice/user-%d.slice/session-1.scope\n", user))
}

func TestWatchLimitsOwners(t *testing.T) {
	w := newWorld(t).everywhere()
	w.sites = map[string]int{"a": 6, "b": 5, "c": 4}
	f := w.follower(Options{Linger: -1, Limits: Limits{OwnerSites: 10, Sites: 100}})
	w.startOf(1000, 1, "a")
	pass(t, f)
	w.tells("+0 a")
	w.startOf(1000, 2, "b")
	w.startOf(1001, 4, "d")
	pass(t, f)
	w.tells("+0 d", "!0 b 2: there is room for 10 sites of /user.slice/user-1000.slice, "+
		"6 are in use, and 5 more are needed: set Limits.OwnerSites to 11 or more")
	w.startOf(1000, 3, "c")
	pass(t, f)
	w.tells("+0 c")
	qt.Assert(t, qt.Equals(*f.stats.Load(), Stats{Sites: 11, Descriptors: 3, OverLimit: 1}))
	qt.Assert(t, qt.Equals(w.opened, 3), qt.Commentf("what is not attached is closed"))
	pass(t, f)
	w.tells() // it is not reported again
	w.end(1)
	pass(t, f)
	f.closing.Wait() // what lacked room is tried again
	w.tells("-0 a", "+0 b")
	qt.Assert(t, qt.Equals(*f.stats.Load(), Stats{Sites: 10, Descriptors: 3}))
}

// However much one owner has attached, another one that has less gets room.
func TestWatchTakesFromThoseThatHaveTheMost(t *testing.T) {
	for name, full := range map[string]func(w *world) Options{
		"by a limit": func(*world) Options { return Options{Linger: -1, Limits: Limits{Sites: 8}} },
		"since there is no more room": func(w *world) Options {
			w.room, w.share = 8, true
			return Options{Linger: -1}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).everywhere()
			f := w.follower(full(w))
			var files []string
			for n := range 8 {
				files = append(files, fmt.Sprint("file", n))
			}
			w.startOf(1000, 1, files...)
			pass(t, f)
			qt.Assert(t, qt.HasLen(w.takeTold(), 8))

			w.startOf(1001, 2, "modest")
			pass(t, f)
			f.closing.Wait()
			told := strings.Join(w.takeTold(), "\n")
			qt.Assert(t, qt.StringContains(told, "+0 modest"))
			qt.Assert(t, qt.StringContains(told, "detached to make room for others that have less"))
			// Any owner may take the rest of the room.
			qt.Assert(t, qt.HasLen(f.attachments(), 8))

			// In the end both have the same.
			for n := range 20 {
				w.startOf(1001, 10+n, fmt.Sprint("other", n))
				pass(t, f)
				f.closing.Wait()
			}
			of := make(map[bool]int)
			for _, a := range f.attachments() {
				of[strings.HasPrefix(a.file, "file")]++
			}
			qt.Assert(t, qt.DeepEquals(of, map[bool]int{true: 4, false: 4}))
		})
	}
}

// A single file does not wait for the thousand of another owner.
func TestWatchHasOwnersTakeTurns(t *testing.T) {
	targets := func(owners string) (all []target) {
		for _, owner := range owners {
			all = append(all, target{owner: string(owner)})
		}
		return all
	}
	var order strings.Builder
	b, now := newBudget(Limits{}), time.Unix(1000, 0)
	for _, at := range b.inTurn(targets("aaaabac"), now) {
		order.WriteString(at.owner)
	}
	qt.Assert(t, qt.Equals(order.String(), "abcaaaa"))

	// The owner that has taken the least time comes first in each turn.
	b.spend("a", now, time.Second)
	b.spend("b", now, time.Millisecond)
	order.Reset()
	for _, at := range b.inTurn(targets("aaaabac"), now) {
		order.WriteString(at.owner)
	}
	qt.Assert(t, qt.Equals(order.String(), "cbaaaaa"))
}

// Where attaching takes long, the files of others are attached meanwhile, and
// the files that waited in the end.
func TestWatchSharesOutTime(t *testing.T) {
	whileNothingGoesOn(t, func(t *testing.T) {
		w := newWorld(t).everywhere()
		f := w.follower(Options{Linger: -1})
		f.budget.atOnce = attachTime / 20
		f.running.Add(1)
		w.fail = func(_ int, file string) error {
			if strings.HasPrefix(file, "slow") {
				time.Sleep(f.budget.atOnce / 3)
			}
			return nil
		}
		w.startOf(1001, 3, "earlier")
		pass(t, f)
		w.tells("+0 earlier")
		w.startOf(1000, 1, "slow1", "slow2", "slow3", "slow4", "slow5")
		w.startOf(1001, 2, "modest")
		pass(t, f)
		qt.Assert(t, qt.StringContains(strings.Join(w.takeTold(), " "), "+0 modest"))
		qt.Assert(t, qt.IsTrue(f.Stats().Waiting > 0))
		for deadline := time.Now().Add(testneeds.Patience(30 * time.Second)); len(f.attachments()) < 7; {
			if time.Now().After(deadline) {
				t.Fatalf("%d are attached: %+v", len(f.attachments()), f.Stats())
			}
			time.Sleep(minimumWait)
		}
		qt.Assert(t, qt.Equals(f.Stats().Waiting, 0))
	})
}

// The owner that has the most descriptors gives some up, however few sites it
// has.
func TestWatchSharesOutDescriptors(t *testing.T) {
	w := newWorld(t).everywhere()
	w.descriptors = map[string]int{"greedy0": 30, "greedy1": 30, "modest": 5}
	w.sites = map[string]int{"modest": 50, "large": 50}
	f := w.follower(Options{Linger: -1, Limits: Limits{OwnerDescriptors: 60, Descriptors: 61}})
	w.startOf(1000, 1, "greedy0", "greedy1")
	pass(t, f)
	w.tells("+0 greedy0", "+0 greedy1")
	w.startOf(1000, 2, "greedy2")
	pass(t, f)
	w.tells("!0 greedy2 2: there is room for 60 descriptors of /user.slice/user-1000.slice, " +
		"60 are in use, and 1 more are needed: set Limits.OwnerDescriptors to 61 or more")

	w.startOf(1001, 3, "modest")
	pass(t, f)
	w.tells("+0 modest")
	w.startOf(1002, 4, "other")
	pass(t, f)
	f.closing.Wait()
	told := strings.Join(w.takeTold(), "\n")
	qt.Check(t, qt.StringContains(told, "+0 other"))
	qt.Check(t,
		qt.StringContains(told, "its container or user had 60 descriptors, the most of all"))
	qt.Check(t, qt.IsTrue(f.Stats().Descriptors <= 61), qt.Commentf("%+v", f.Stats()))
}

// While Run runs, nobody waits for a slow detachment that makes room.
func TestWatchDoesNotWaitForWhatGivesWay(t *testing.T) {
	w := newWorld(t).everywhere()
	f := w.follower(Options{Linger: -1, Limits: Limits{Sites: 2}})
	w.startOf(1000, 1, "greedy0", "greedy1")
	pass(t, f)
	w.takeTold()
	goOn := make(chan struct{})
	w.detaching = func() { <-goOn }
	f.running.Add(1)
	defer f.running.Add(-1)
	w.startOf(1001, 2, "modest")
	pass(t, f)
	told := strings.Join(w.takeTold(), "\n")
	close(goOn)
	qt.Check(t, qt.StringContains(told, "+0 modest"))
	f.closing.Wait()
}
