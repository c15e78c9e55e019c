// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"os"
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
