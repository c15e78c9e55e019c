// SPDX-License-Identifier: BSD-2-Clause

package proc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/usdt/proc"
)

// cgroup2 returns where cgroup version 2 is mounted.
func cgroup2(t *testing.T) string {
	text, err := os.ReadFile("/proc/self/mountinfo")
	qt.Assert(t, qt.IsNil(err))
	for line := range strings.Lines(string(text)) {
		if before, after, _ := strings.Cut(line, " - "); strings.HasPrefix(after, "cgroup2 ") {
			return strings.Fields(before)[4]
		}
	}
	testneeds.Missing(t, "cgroup version 2 is not mounted")
	return ""
}

func number(t *testing.T, dir string) uint64 {
	info, err := os.Stat(dir)
	qt.Assert(t, qt.IsNil(err))
	return info.Sys().(*syscall.Stat_t).Ino
}

func makeCgroup(t *testing.T, dir string) uint64 {
	err := os.Mkdir(dir, 0o755)
	if os.IsPermission(err) {
		testneeds.Missing(t, "making cgroups: %v", err)
	}
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { os.Remove(dir) })
	return number(t, dir)
}

const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestWatch(t *testing.T) {
	root := cgroup2(t)
	name := fmt.Sprintf("gousdt-test-%d", os.Getpid())
	dir := filepath.Join(root, name)
	before := makeCgroup(t, dir)
	cgroups, err := proc.WatchCgroups("")
	qt.Assert(t, qt.IsNil(err))
	defer cgroups.Close()
	find := func(number uint64) string {
		path, _ := cgroups.Path(number)
		return path
	}
	qt.Assert(t, qt.Equals(find(before), "/"+name))
	qt.Assert(t, qt.Equals(find(number(t, root)), "/"))

	t.Run("made later, and at once removed", func(t *testing.T) {
		// Hundreds, which are removed before their number can be read.
		numbers := make(map[string]uint64)
		for i := range 200 {
			inner := filepath.Join(dir, fmt.Sprintf("docker-%064x.scope", i))
			numbers[inner] = makeCgroup(t, inner)
			qt.Assert(t, qt.IsNil(os.Remove(inner)))
		}
		missing := 0
		for inner, n := range numbers {
			// The kernel reports a directory when it is made. If it is gone
			// when its number is asked for, it has none any more.
			path := find(n)
			if path == "" {
				missing++
				continue
			}
			qt.Assert(t, qt.Equals(path, "/"+name+"/"+filepath.Base(inner)))
			c, ok := proc.ContainerOf(path)
			qt.Assert(t, qt.IsTrue(ok))
			qt.Assert(t, qt.Equals(c.Runtime, "docker"))
		}
		t.Logf("%d of %d were gone before they were asked for", missing, len(numbers))
	})
	t.Run("made later, and kept after its end", func(t *testing.T) {
		inner := filepath.Join(dir, "docker-"+id+".scope")
		n := makeCgroup(t, inner)
		testneeds.Await(t, 10*time.Second, "the cgroup is found",
			func() bool { return find(n) != "" })
		qt.Assert(t, qt.Equals(find(n), "/"+name+"/docker-"+id+".scope"))
		qt.Check(t, qt.IsTrue(cgroups.Exists(n)))
		qt.Assert(t, qt.IsNil(os.Remove(inner)))
		qt.Check(t, qt.IsFalse(cgroups.Exists(n)))
		again := makeCgroup(t, inner)
		testneeds.Await(t, 10*time.Second, "the cgroup is found",
			func() bool { return find(again) != "" })
		qt.Assert(t, qt.Equals(find(again), "/"+name+"/docker-"+id+".scope"))
		qt.Assert(t, qt.Equals(find(n), "/"+name+"/docker-"+id+".scope"))
		qt.Check(t, qt.IsFalse(cgroups.Exists(n)))
		qt.Check(t, qt.IsTrue(cgroups.Exists(again)))

		// The IDs of a container are those of the cgroups that it has now.
		ids := func(name string) []uint64 {
			t.Helper()
			ids, err := cgroups.IDs(name)
			qt.Check(t, qt.IsNil(err))
			return ids
		}
		qt.Check(t, qt.DeepEquals(ids(id[:10]), []uint64{again}))
		part := makeCgroup(t, filepath.Join(inner, "init.scope"))
		qt.Check(t, qt.ContentEquals(ids(id), []uint64{again, part}))
		qt.Check(t, qt.DeepEquals(ids("/"+name), []uint64{before}))
		for _, none := range []string{id + "0", ""} {
			_, err := cgroups.IDs(none)
			qt.Check(t, qt.ErrorMatches(err, `there is no container "`+none+`" now`))
		}

		// The beginning of several IDs is taken for none of them, unless it is
		// the whole of one.
		web := makeCgroup(t, filepath.Join(dir, "lxc.payload.gousdt-web"))
		qt.Check(t, qt.DeepEquals(ids("gousdt-w"), []uint64{web}))
		more := makeCgroup(t, filepath.Join(dir, "lxc.payload.gousdt-web2"))
		qt.Check(t, qt.DeepEquals(ids("gousdt-web"), []uint64{web}))
		qt.Check(t, qt.DeepEquals(ids("gousdt-web2"), []uint64{more}))
		_, err := cgroups.IDs("gousdt-w")
		qt.Check(t, qt.ErrorMatches(err,
			`2 containers have an ID that begins with "gousdt-w": gousdt-web and gousdt-web2, for example: give more of it`))
	})
	t.Run("no cgroup", func(t *testing.T) {
		qt.Assert(t, qt.Equals(find(1<<60), ""))
		qt.Check(t, qt.IsFalse(cgroups.Exists(1<<60)))
	})
	qt.Assert(t, qt.IsNil(cgroups.Err()))
}

func TestWatchErrors(t *testing.T) {
	_, err := proc.WatchCgroups("/nonexistent")
	qt.Assert(t,
		qt.ErrorMatches(err, "watch cgroups: stat /nonexistent: no such file or directory"))
}
