// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/usdt/proc"
)

// Each outcome of a scan, of a process that maps a file with probes.
func TestOutcomesOfAScan(t *testing.T) {
	for name, test := range map[string]struct {
		change func(w *watch, p fakeProcess)
		why
		want   outcome
		access access
		pairs  int
	}{
		"gone": {change: func(w *watch, p fakeProcess) { w.remove(1) }, want: gone, pairs: 1},
		"a zombie": {change: func(w *watch, p fakeProcess) {
			p.state, p.size, p.img = 'Z', 0, 0
			w.put(p)
		}, want: unwanted},
		"replaced": {change: func(w *watch, p fakeProcess) {
			p.startTime, p.maps[0] = 6, w.at(0x1000, "plain.so")
			w.put(p)
		}, want: scanned},
		"unchanged":            {want: unchanged, pairs: 1},
		"unchanged, but asked": {why: asked, want: scanned, pairs: 1},
		"as large as before, and other mappings": {change: func(w *watch, p fakeProcess) {
			p.maps[0] = w.at(0x1000, "plain.so")
			w.put(p)
		}, want: unchanged, pairs: 1},
		"larger, with the same mappings": {change: func(w *watch, p fakeProcess) {
			p.size = 2
			w.put(p)
		}, want: unchanged, pairs: 1},
		"larger, with other mappings": {change: func(w *watch, p fakeProcess) {
			p.size, p.maps = 2, append(p.maps, w.at(0x3000, "other.so"))
			w.put(p)
		}, want: scanned, pairs: 2},
		"renamed": {change: func(w *watch, p fakeProcess) {
			p.command = "unwanted"
			w.put(p)
		}, want: unwanted},
		"another program": {change: func(w *watch, p fakeProcess) {
			p.img, p.maps[0] = 8, w.at(0x1000, "other.so")
			w.put(p)
		}, want: scanned, pairs: 1},
		"executing": {change: func(w *watch, p fakeProcess) {
			p.img, p.maps = 0, nil
			w.put(p)
		}, want: executing, access: failing, pairs: 1},
		"executing for longer": {change: func(w *watch, p fakeProcess) {
			w.processes[1].access = failing
			p.img, p.maps = 0, nil
			w.put(p)
		}, want: unchanged, access: failing, pairs: 1},
		"unreadable": {change: func(w *watch, p fakeProcess) { w.write(1, "stat", "broken") },
			want: unread, access: failing, pairs: 1},
		"a file that cannot be read": {change: func(w *watch, p fakeProcess) {
			p.size, p.maps[0].file = 2, ""
			p.maps = append(p.maps, w.at(0x3000, "other.so"))
			w.put(p)
			w.link(1, "root", "/")
		}, want: scanned, access: failing, pairs: 2},
		"lacking": {change: func(w *watch, p fakeProcess) {
			var limit unix.Rlimit
			qt.Assert(w.t, qt.IsNil(unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)))
			w.t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) })
			none := unix.Rlimit{Cur: 0, Max: limit.Max}
			qt.Assert(w.t, qt.IsNil(unix.Setrlimit(unix.RLIMIT_NOFILE, &none)))
		}, want: lacking, pairs: 1},
		"postponed": {change: func(w *watch, p fakeProcess) {
			w.turns.take(w.processes[1].owner, time.Now(), time.Hour, false)
		}, why: happened, want: postponed, pairs: 1},
		"not postponed, as it is asked for": {change: func(w *watch, p fakeProcess) {
			w.turns.take(w.processes[1].owner, time.Now(), time.Hour, false)
		}, why: asked, want: scanned, pairs: 1},
		"scanned too much": {change: func(w *watch, p fakeProcess) {
			w.processes[1].allowance.Take(processRate, time.Now(), time.Hour)
		}, why: happened, want: same, pairs: 1},
		"set aside": {change: func(w *watch, p fakeProcess) { w.processes[1].blocked = &task{} },
			want: same, pairs: 1},
		"set aside, and unreadable": {change: func(w *watch, p fakeProcess) {
			w.processes[1].blocked = &task{}
			w.write(1, "stat", "broken")
		}, want: same, pairs: 1},
		"begun": {change: func(w *watch, p fakeProcess) {
			dir := w.t.TempDir()
			w.cache.limit = 3 * maxPairs
			for i := range maxPairs {
				path := memoryProbes.write(w.t, dir, fmt.Sprint(i))
				p.maps = append(p.maps, code(uint64(i+2)*0x1000, path))
			}
			w.put(p)
			w.running.Add(1)
			w.t.Cleanup(func() { w.running.Add(-1) })
		}, why: happened, want: begun, pairs: -1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatch(t, WatcherOptions{
				Filter: func(p proc.Process) bool { return p.Command != "unwanted" }}, "*:*")
			w.t = t
			p := fakeProcess{pid: 1, startTime: 5, size: 1, img: 7,
				maps: []fakeMap{w.at(0x1000, "memory.so")}}
			w.put(p)
			w.pass("+otel_memory", "+1 memory.so")
			if test.change != nil {
				test.change(w, p)
			}
			w.mu.Lock()
			w.scan = new(scan) // for what is reported
			tasks := w.tasks([]int{1}, test.why)
			w.mu.Unlock()
			scan := &tasks[0]
			w.look(scan)
			defer func() {
				for _, file := range scan.acquired {
					file.Release()
				}
				w.processes[1].blocked = nil
			}()
			qt.Check(t, qt.Equals(scan.outcome, test.want))
			qt.Check(t, qt.Equals(scan.now.access, test.access))
			qt.Check(t, qt.Equals(scan.isAnother(), name == "replaced"))
			qt.Check(t, qt.Equals(scan.wait > 0, test.want == postponed))
			qt.Check(t, qt.Equals(scan.lack != nil, test.want == lacking))
			if test.pairs >= 0 {
				qt.Check(t, qt.HasLen(scan.pairs, test.pairs))
			}
		})
	}

	var hidden task
	qt.Check(t, qt.Equals(hidden.fails(&known{}, &procfs.Error{Err: procfs.ErrAccess}), unread))
	qt.Check(t, qt.Equals(hidden.now.access, denied))
}
