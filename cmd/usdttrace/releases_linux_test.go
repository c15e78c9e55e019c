// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// Newer versions than the system's, by the numbers that they know themselves.
// Those of PostgreSQL go through the same tests as the system's: see
// eachPostgres, and make test-releases.
func TestSoftwareOfNewerReleases(t *testing.T) {
	testprog.RequireBPF(t)
	for _, root := range releases(t) {
		found := func(pattern string) (outside, inside string) {
			t.Helper()
			files, _ := filepath.Glob(root + pattern)
			qt.Assert(t, qt.Not(qt.HasLen(files, 0)), qt.Commentf("%s", pattern))
			return files[0], strings.TrimPrefix(files[0], root)
		}
		count := func(file, probe string, command ...string) uint64 {
			t.Helper()
			args := append([]string{"--json", "--count", file, probe, "--"},
				testprog.InRelease(root, new(syscall.Credential), command...)...)
			result := start(t, args...).wait()
			qt.Assert(t, qt.HasLen(result.objects("row"), 1), qt.Commentf("%v", result))
			return result.objects("row")[0].Count
		}
		t.Run(filepath.Base(root), func(t *testing.T) {
			temporary := t.TempDir()
			library, _ := found("/usr/lib/jvm/java-[0-9][0-9]-*/lib/server/libjvm.so")
			_, java := found("/usr/lib/jvm/java-[0-9][0-9]-*/bin/java")
			log := filepath.Join(temporary, "classes")
			loaded := count(library, "hotspot:class__loaded", java, "-Xlog:class+load:file="+log, "-version")
			said, err := os.ReadFile(log)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(loaded, uint64(strings.Count(string(said), " source: "))))

			python, _ := found("/usr/bin/python3.[0-9][0-9]")
			collections := filepath.Join(temporary, "collections")
			collected := count(python, "python:gc__start", "/usr/bin/python3", "-I", "-c",
				"import gc, os, sys\nfor _ in range(20): gc.collect()\nwith open(sys.argv[1], 'w') as file:\n"+
					"    print(sum(s['collections'] for s in gc.get_stats()), file=file)\nos._exit(0)", collections)
			said, err = os.ReadFile(collections)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(strconv.FormatUint(collected, 10), strings.TrimSpace(string(said))))
		})
	}
}

// Virtual threads run a method that waits, and one that does not. So does a
// thread of the system, which says how long.
const virtualThreads = `
import java.util.concurrent.*;
public class Virtual {
	static void waits(boolean is) throws Exception { if (is) Thread.sleep(20); }
	static void works() throws Exception { Thread.sleep(2); }
	static void run() {
		try { for (int i = 0; i < 40; i++) waits(i % 2 == 0); }
		catch (Exception e) { throw new RuntimeException(e); }
	}
	public static void main(String[] args) throws Exception {
		try (AutoCloseable virtual = (AutoCloseable) Executors.class.getMethod(
				"newVirtualThreadPerTaskExecutor").invoke(null)) {
			for (int i = 0; i < 20; i++) ((ExecutorService) virtual).execute(Virtual::run);
			for (int i = 0; i < 50; i++) works();
		}
	}
}
`

// No end of a virtual thread's method is taken for that of another one, and the
// methods of other threads are measured.
func TestVirtualThreads(t *testing.T) {
	testprog.RequireBPF(t)
	dir := t.TempDir()
	source := filepath.Join(dir, "Virtual.java")
	qt.Assert(t, qt.IsNil(os.WriteFile(source, []byte(virtualThreads), 0o644)))
	javac := testneeds.Tool(t, "javac", "default-jdk-headless")
	output(t, exec.Command(javac, "--release", "17", "-d", dir, source))
	for _, root := range releases(t) {
		t.Run(filepath.Base(root), func(t *testing.T) {
			found, _ := filepath.Glob(root + "/usr/lib/jvm/java-[0-9][0-9]-*")
			qt.Assert(t, qt.HasLen(found, 1))
			java := testprog.InRelease(root, new(syscall.Credential), strings.TrimPrefix(found[0], root)+
				"/bin/java", "-XX:+DTraceMethodProbes", "-cp", dir, "Virtual")
			for _, how := range []string{"duration", "self"} {
				args := []string{"--json", "--sum", how, "--latency", "hotspot:method", "--by", "method",
					"--where", `start.class == "Virtual"`, found[0] + "/lib/server/libjvm.so", "--"}
				r := start(t, append(args, java...)...).wait()
				calls := make(map[string]uint64)
				for _, row := range r.objects("row") {
					calls[fmt.Sprint(row.Keys["method"])] = row.Count
				}
				want := map[string]uint64{"works": 50, "main": 1}
				qt.Check(t, qt.DeepEquals(calls, want), qt.Commentf("%v", r))
				summary := r.objects("summary")[0]
				qt.Check(t, qt.IsTrue(summary.Overlapped >= 20*41), qt.Commentf("%v", summary))
				qt.Check(t, qt.StringContains(r.stdout, "run virtual threads"))
			}
		})
	}
}

// eachPostgres runs a test with the system's server, and with those of newer
// releases, at the same time.
func eachPostgres(t *testing.T, test func(t *testing.T, of testprog.Release)) {
	testprog.Parallel(t)
	if root := os.Getenv(testprog.ReleaseVariable); root != "" {
		test(t, testprog.Release(root))
		return
	}
	t.Run("system", func(t *testing.T) {
		t.Parallel()
		test(t, "")
	})
	t.Run("newer", func(t *testing.T) {
		for _, root := range releases(t) {
			t.Run(filepath.Base(root), func(t *testing.T) {
				t.Parallel()
				test(t, testprog.Release(root))
			})
		}
	})
}

// releases returns the roots of the releases that internal/setup/releases has
// unpacked.
func releases(t testing.TB) (roots []string) {
	t.Helper()
	const folder = "docs/recipes/build/releases"
	found, err := filepath.Glob(filepath.Join("../..", folder, "[a-z]*/usr"))
	qt.Assert(t, qt.IsNil(err))
	for _, usr := range found {
		root, err := filepath.Abs(filepath.Dir(usr))
		qt.Assert(t, qt.IsNil(err))
		roots = append(roots, root)
	}
	if roots == nil {
		testneeds.Missing(t, "needs what internal/setup/releases %s unpacks", folder)
	}
	return roots
}
