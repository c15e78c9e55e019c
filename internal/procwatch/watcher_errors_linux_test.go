// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
)

func TestWatcherIsNotStoppedByWhatIsWrongWithOne(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	truncated := filepath.Join(t.TempDir(), "truncated.so")
	qt.Assert(t, qt.IsNil(os.WriteFile(truncated, memoryProbes.bytes()[:0x1010], 0o755)))
	for pid := 1; pid <= 3; pid++ {
		w.put(fakeProcess{pid: pid, size: 1, maps: []fakeMap{
			code(0x1000, truncated), code(0x3000, "/dev/null"), {start: 0x5000, end: 0x6000,
				permissions: "r-xp", inode: 5, path: "/gone.so"}, w.at(0x7000, "memory.so"),
		}})
	}
	w.link(1, "root", "/")
	w.link(2, "root", "/")
	w.put(fakeProcess{pid: 4, size: 1})
	w.write(4, "maps", "what is this?\n"+w.at(0x1000, "memory.so").line())
	w.put(fakeProcess{pid: 5, size: 1})
	w.write(5, "stat", "nor this")
	w.put(fakeProcess{pid: 6, size: 1})
	qt.Assert(t, qt.IsNil(os.Remove(filepath.Join(w.root, "6/maps"))))

	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	var errs []string
	var rest []string
	for _, told := range w.told {
		if text, ok := strings.CutPrefix(told, "! "); ok {
			errs = append(errs, text)
		} else {
			rest = append(rest, told)
		}
	}
	qt.Check(t, qt.ContentEquals(rest, []string{"+otel_memory", "+1 memory.so", "+2 memory.so",
		"+3 memory.so"}))
	want := []string{
		`process 1: identify "/dev/null": not a regular file`,
		`process 2: identify "/dev/null": not a regular file`,
		`process 3: identify "/dev/null": not a regular file`,
		`process 1: identify "/gone.so": mapping or file changed while it was read .*`,
		`process 2: identify "/gone.so": mapping or file changed .*`,  // 3 has no root: it is gone
		`process [123]: read probes ".*/truncated.so": .*truncated.*`, // once for all
		`process 4: read maps: malformed line of maps`,
		`process 5: read stat: malformed stat: no command in parentheses`,
	}
	qt.Check(t, qt.HasLen(errs, len(want)), qt.Commentf("%s", strings.Join(errs, "\n")))
	for _, pattern := range want {
		re := regexp.MustCompile("^" + pattern + "$")
		qt.Check(t, qt.IsTrue(slices.ContainsFunc(errs, re.MatchString)),
			qt.Commentf("%s", pattern))
	}
	w.pass() // and all of it only once
	w.pass()

	w.put(fakeProcess{pid: 5, size: 1, maps: []fakeMap{w.at(0x1000, "other.so")}})
	w.pass("+libstdcxx", "+5 other.so") // what is mended, is found
	qt.Check(t, qt.ErrorIs(w.Sync(t.Context(), 1), procfs.ErrNotRegular),
		qt.Commentf("who asks is told again"))
	qt.Check(t, qt.ErrorIs(w.Sync(t.Context(), 2), elffile.ErrMalformed))
}

func TestWatcherKeepsPairsThroughTroubleThatPasses(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	m := w.at(0x1000, "memory.so")
	w.put(fakeProcess{pid: 1, size: 1, maps: []fakeMap{m}})
	w.pass("+otel_memory", "+1 memory.so")
	m.file = "" // cannot be reached by map_files now, nor by its path
	w.put(fakeProcess{pid: 1, size: 1, maps: []fakeMap{m}})
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 1)))
	w.pass()
	qt.Check(t, qt.HasLen(w.ProcessFiles(), 1))
	w.write(1, "stat", "broken")
	w.pass("! process 1: read stat: malformed stat: no command in parentheses")
	qt.Check(t, qt.HasLen(w.ProcessFiles(), 1))
	w.put(fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}})
	w.pass()
	qt.Check(t, qt.HasLen(w.ProcessFiles(), 1))
}

func TestWatcherTriesAgainInTheNextPassWhatMayPass(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	p := fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}}
	p.maps[0].file = ""
	w.put(p)
	w.link(1, "root", "/")
	w.pass(`! process 1: identify "` + w.libs["memory.so"] +
		`": mapping or file changed while it was read (try again): no such file or directory`)
	p.maps[0].file = w.libs["memory.so"]
	w.put(p) // stat does not tell
	w.pass("+otel_memory", "+1 memory.so")
	reads := w.countReads(1)
	w.pass()
	qt.Check(t, qt.Equals(reads(), 0), qt.Commentf("and no more"))
}

func TestWatcherTriesAgainLaterWhatIsNotLikelyToPass(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	p := fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}}
	p.maps[0].file = "/dev/null"
	w.put(p)
	w.pass(`! process 1: identify "` + w.libs["memory.so"] + `": not a regular file`)
	p.maps[0].file = w.libs["memory.so"]
	w.put(p) // stat does not tell
	w.told = nil
	reads := w.countReads(1)
	for range busyPasses {
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	}
	qt.Check(t, qt.DeepEquals(w.told, []string{"+otel_memory", "+1 memory.so"}))
	qt.Check(t, qt.Equals(reads(), 1))
}

func TestWatcherBoundsTheFilesOfAProcess(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	w.patience = time.Hour // with a thousand files, on a slow machine
	dir := t.TempDir()
	p := fakeProcess{pid: 1, size: 1}
	for i := range maxPairs + 2 {
		path := memoryProbes.write(t, dir, fmt.Sprint(i))
		p.maps = append(p.maps, code(uint64(i+1)*0x1000, path))
	}
	w.cache.limit = 3 * maxPairs
	w.put(p)
	err := w.Sync(t.Context(), 1)
	qt.Check(t, qt.ErrorIs(err, errTooManyFiles))
	qt.Check(t, qt.HasLen(w.ProcessFiles(), maxPairs))
	qt.Check(t, qt.HasLen(w.cache.files, maxPairs))
	qt.Check(t, qt.ErrorIs(w.Sync(t.Context(), 1), errTooManyFiles))
	qt.Check(t, qt.HasLen(w.cache.files, maxPairs))
	w.remove(1)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 1)))
	qt.Check(t, qt.HasLen(w.cache.files, 0))
}
