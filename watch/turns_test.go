// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package watch

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"
)

// A file that takes long has one turn. Then small files of others are attached
// while it goes on, and large ones and those of the same owner wait.
func TestWatchHasOthersTheirTurnWithinALargeFile(t *testing.T) {
	for name, slow := range map[string]int{"opening": wholeFile, "attaching": 0} {
		bubble := func(name string, test func(t *testing.T, w *world, f *Watch)) {
			t.Run(name, func(t *testing.T) {
				whileNothingGoesOn(t, func(t *testing.T) {
					w := newWorld(t).everywhere()
					w.sites = map[string]int{"large": 10_000, "largest": 10_000}
					w.fail = func(part int, file string) error {
						if part == slow && w.sites[file] > fewSites {
							time.Sleep(5 * time.Second)
						}
						return nil
					}
					f := w.follower(Options{})
					f.running.Add(1) // as Run does
					w.startOf(1000, 1, "large", "more")
					w.startOf(1001, 2, "largest")
					w.startOf(1002, 3, "small")
					test(t, w, f)
				})
			})
		}
		bubble(name, func(t *testing.T, w *world, f *Watch) {
			began := time.Now()
			qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
			qt.Check(t, qt.IsTrue(time.Since(began) <= 2*turn))
			told := w.takeTold()
			qt.Check(t, qt.IsTrue(slices.Contains(told, "+0 small")))
			if slow != wholeFile {
				qt.Check(t, qt.HasLen(f.calls, 1))
			}
			time.Sleep(time.Second)
			w.startOf(1003, 4, "late")
			began = time.Now()
			qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
			qt.Check(t, qt.Equals(time.Since(began), 0))
			told = append(told, w.takeTold()...)
			qt.Check(t, qt.IsTrue(slices.Contains(told, "+0 late")))

			time.Sleep(20 * time.Second)
			synctest.Wait()
			qt.Check(t, qt.HasLen(f.attachments(), 5))
			qt.Check(t, qt.Equals(*f.stats.Load(), Stats{Sites: 20_003, Descriptors: 5}))
			qt.Check(t, qt.HasLen(append(told, w.takeTold()...), 5))
		})
		bubble(name+" and closing", func(t *testing.T, w *world, f *Watch) {
			qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
			qt.Assert(t, qt.IsNil(f.Close())) // waits for calls that go on
			qt.Check(t, qt.HasLen(w.attached, 0))
			qt.Check(t, qt.Equals(w.opened, 0))
			qt.Check(t, qt.HasLen(f.calls, 0))
		})
		bubble(name+" and then blocking", func(t *testing.T, w *world, f *Watch) {
			f.patience = time.Second / 2
			qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
			w.takeTold()
			time.Sleep(time.Second + mostPatience*f.patience)
			synctest.Wait()
			qt.Check(t, qt.IsTrue(slices.ContainsFunc(w.takeTold(), func(told string) bool {
				return told[0] == '!' // the error names it
			})))
			f.following.Lock()
			qt.Check(t, qt.IsTrue(f.countUnanswered() > 0))
			f.following.Unlock()
			time.Sleep(30 * time.Second)
			qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
			time.Sleep(30 * time.Second)
			synctest.Wait()
			qt.Check(t, qt.HasLen(f.attachments(), 4))
		})
	}
}

// Of the files that wait for their turn, what has been read takes no memory.
// All are attached in the end, also where opening one takes all of the time
// that its owner may take at once.
func TestWatchClosesWhatWaits(t *testing.T) {
	for name, slow := range map[string]int{"opening": wholeFile, "attaching": 0} {
		t.Run(name, func(t *testing.T) {
			whileNothingGoesOn(t, func(t *testing.T) {
				w := newWorld(t).everywhere()
				w.sites = make(map[string]int)
				most := 0
				w.fail = func(part int, _ string) error {
					w.mu.Lock()
					attached := make(map[string]bool)
					for a := range w.attached {
						attached[a.file] = true
					}
					most = max(most, w.opened-len(attached))
					w.mu.Unlock()
					if part == slow {
						time.Sleep(2 * attachTime)
					}
					return nil
				}
				f := w.followerOf(2, Options{})
				f.running.Add(1)
				var files []string
				for n := range 20 {
					files = append(files, fmt.Sprint("file", n))
					w.sites[files[n]] = 2 * fewSites
				}
				w.startOf(1000, 1, files[:10]...)
				w.startOf(1001, 2, files[10:]...)
				qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
				time.Sleep(20 * time.Minute)
				synctest.Wait()
				qt.Check(t, qt.HasLen(f.attachments(), 40))
				qt.Check(t, qt.IsTrue(most <= 2), qt.Commentf("%d files were open", most))
			})
		})
	}
}

func TestWatchKeepsRoomForACallThatGoesOn(t *testing.T) {
	whileNothingGoesOn(t, func(t *testing.T) {
		w := newWorld(t).everywhere()
		w.sites = map[string]int{"large": 10, "other": 5}
		w.fail = func(part int, file string) error {
			if part == 0 && file == "large" {
				time.Sleep(time.Second)
			}
			return nil
		}
		f := w.follower(Options{Limits: Limits{Sites: 12}})
		f.running.Add(1)
		w.startOf(1000, 1, "large")
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
		w.startOf(1001, 2, "other")
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
		w.tells("!0 other 2: there is room for 12 sites, 10 are in use, and 5 more are needed: " +
			"set Limits.Sites to 15 or more")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.tells("+0 large")
		qt.Check(t, qt.Equals(f.budget.total[sites], 10))
	})
}
