// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package follow

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"
)

func TestLingering(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, w *world, f *Follower[*fake]){
		"ends after its time": func(t *testing.T, w *world, f *Follower[*fake]) {
			time.Sleep(time.Second - 1)
			synctest.Wait()
			w.tells()
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			w.tells("-0 a")
		},
		"does not end if a process maps the file again": func(t *testing.T, w *world, f *Follower[*fake]) {
			w.start(2, "a")
			pass(t, f)
			time.Sleep(time.Hour)
			synctest.Wait()
			w.tells()
			w.end(2)
			pass(t, f)
			time.Sleep(time.Second)
			synctest.Wait()
			w.tells("-0 a")
		},
		// The timer ends while changes are followed by which a process maps the
		// file.
		"does not end by a timer that comes too late": func(t *testing.T, w *world, f *Follower[*fake]) {
			w.fail = func(int, string) error {
				time.Sleep(time.Minute)
				return nil
			}
			w.start(2, "a", "b")
			pass(t, f)
			w.end(2)
			f.opts.Linger = time.Hour
			pass(t, f)
			time.Sleep(time.Minute)
			synctest.Wait()
			w.tells("+0 b")
			time.Sleep(time.Hour)
			synctest.Wait()
			w.tells("-0 a", "-0 b")
		},
	} {
		t.Run(name, func(t *testing.T) {
			whileNothingGoesOn(t, func(t *testing.T) {
				w := newWorld(t).everywhere()
				f := w.follower(Options{Linger: time.Second})
				f.patience = time.Hour
				w.start(9)
				w.start(1, "a")
				pass(t, f)
				w.end(1)
				pass(t, f)
				w.tells("+0 a")
				test(t, w, f)
				qt.Check(t, qt.Equals(len(f.files), 0))
			})
		})
	}
}
