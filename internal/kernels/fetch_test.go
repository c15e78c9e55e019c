// SPDX-License-Identifier: BSD-2-Clause

package kernels

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// fakeCommands puts shell scripts in front of the machine's programs.
func fakeCommands(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, name),
			[]byte("#!/bin/sh\n"+script), 0o755)))
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// emptyCache makes a new cache the user's, and returns its folder of kernels.
func emptyCache(t *testing.T) string {
	t.Helper()
	testneeds.Tool(t, "dpkg-deb", "dpkg")
	testneeds.NoGuest(t, "it has no shell")
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	return filepath.Join(cache, "gousdt", "kernels")
}

// fetch fetches a kernel, and returns its folder.
func fetch(t *testing.T, kernel string, suites ...string) (string, error) {
	t.Helper()
	machine, series, _ := strings.Cut(kernel, "/")
	out, err := exec.CommandContext(t.Context(), "../setup/debian",
		append([]string{"kernel", machine, "cloud-" + machine, series}, suites...)...).Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// archive pretends to be a Debian archive with packages that have files, by the
// package's name. What apt-get is asked is in the file that it returns.
func archive(t *testing.T, packages map[string][]string, others ...string) (asked string) {
	t.Helper()
	dir := t.TempDir()
	asked = filepath.Join(dir, "asked")
	names := others
	for name, files := range packages {
		names = append(names, name)
		tree := filepath.Join(dir, name)
		for _, file := range append(files, "DEBIAN/control") {
			text := "Package: " + name + "\nVersion: 7.0.2-1\nArchitecture: all\n" +
				"Maintainer: Nobody <nobody@example.org>\nDescription: a test\n"
			qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(filepath.Join(tree, file)), 0o755)))
			qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(tree, file), []byte(text), 0o644)))
			if filepath.Ext(file) == ".ko" {
				qt.Assert(t, qt.IsNil(exec.Command("xz", filepath.Join(tree, file)).Run()))
			}
		}
		out, err := exec.Command("dpkg-deb", "--build", tree,
			filepath.Join(dir, name+"_7.0.2-1_amd64.deb")).CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	}
	fakeCommands(t, map[string]string{
		"apt-cache": "printf '%s\\n' " + strings.Join(names, " "),
		"apt-get": "echo \"$*\" >>" + asked + "\n" +
			"for last; do :; done; file=" + dir + "/${last}_7.0.2-1_amd64.deb\n" +
			`case "$*" in
			*indextargets*) echo sid http://mirror.example/;;
			*update*) ;;
			*) [ -e $file ] || { echo "E: no candidate $last" >&2; exit 100; }
			   case "$*" in *print-uris*) echo "'http:x' ${file##*/} 1 2";; *) cp $file .;; esac;;
			esac`,
	})
	return asked
}

func TestKernelIsTakenWithItsModulesIfThereAreAny(t *testing.T) {
	testneeds.Tool(t, "xz", "xz-utils")
	packages := map[string][]string{"linux-binary-7.0.2+deb13-cloud-amd64": {
		"usr/lib/modules/7.0.2/vmlinuz", "boot/config-7.0.2", "boot/System.map-7.0.2",
		"usr/share/doc/x/vmlinuz-note.txt"}}
	for _, want := range [][]string{nil, {"fuse.ko", "overlay.ko"}} {
		emptyCache(t)
		if want != nil {
			packages["linux-modules-7.0.2+deb13-cloud-amd64"] = []string{
				"usr/lib/modules/7.0.2/kernel/fs/fuse.ko",
				"usr/lib/modules/7.0.2/kernel/fs/overlay.ko", "usr/lib/modules/7.0.2/kernel/fs/xfs.ko"}
		}
		archive(t, packages, "linux-headers-7.0.2")
		folder, err := fetch(t, "amd64/7.0", "sid")
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.StringContains(folder, "_7.0.2-1_"))
		_, err = os.Stat(filepath.Join(folder, "kernel"))
		qt.Check(t, qt.IsNil(err))
		modules, err := filepath.Glob(filepath.Join(folder, "*.ko"))
		qt.Check(t, qt.IsNil(err))
		var names []string
		for _, module := range modules {
			names = append(names, filepath.Base(module))
		}
		qt.Check(t, qt.DeepEquals(names, want))
	}
}

func TestNewestKernelOfASeries(t *testing.T) {
	emptyCache(t)
	asked := archive(t, nil, strings.Fields(`
		linux-image-5.10.0-32-cloud-amd64-unsigned
		linux-image-5.10.0-9-cloud-amd64-unsigned
		linux-image-6.12.95+deb12-cloud-amd64
		linux-image-6.12.107+deb13-cloud-amd64-unsigned
		linux-image-6.12.107+deb13-cloud-amd64-dbg
		linux-image-6.12.200+deb13-rt-cloud-amd64
		linux-image-6.12.201+deb13-amd64
		linux-image-6.12-cloud-amd64
		linux-image-cloud-amd64
		linux-headers-6.12.202+deb13-cloud-amd64
		linux-image-6.1.0-0.deb11.52-cloud-arm64
		linux-image-6.1.0-0.deb11.6-cloud-arm64
		linux-image-7.3.5+deb13-cloud-amd64
		linux-binary-7.2.9+deb14-cloud-amd64
		linux-binary-7.2.13+deb14-cloud-amd64
		linux-binary-7.3-cloud-amd64
		linux-binary-7.3.4+deb13-cloud-amd64
		linux-image- linux-image-s390x`)...)
	for kernel, want := range map[string]string{
		"amd64/5.10":   "linux-image-5.10.0-32-cloud-amd64-unsigned",
		"amd64/6.12":   "linux-image-6.12.107+deb13-cloud-amd64-unsigned",
		"amd64/7.2":    "linux-binary-7.2.13+deb14-cloud-amd64",
		"amd64/newest": "linux-binary-7.3.4+deb13-cloud-amd64",
		"arm64/6.1":    "linux-image-6.1.0-0.deb11.52-cloud-arm64",
		"amd64/6.1":    "",
		"s390x/6.12":   "",
	} {
		_ = os.Remove(asked) // there is none before the first
		_, err := fetch(t, kernel, "sid")
		qt.Check(t, qt.IsNotNil(err)) // the archive has none of them
		lines, err := os.ReadFile(asked)
		qt.Assert(t, qt.IsNil(err))
		first := ""
		for line := range strings.Lines(string(lines)) {
			if _, name, ok := strings.Cut(line, "download --print-uris "); ok && first == "" {
				first = strings.TrimSpace(name)
			}
		}
		qt.Check(t, qt.Equals(first, want), qt.Commentf("%s", kernel))
	}
}

// An index may name a kernel that the archive does not have any more.
func TestOlderKernelIsTakenIfTheNewestIsGone(t *testing.T) {
	emptyCache(t)
	archive(t, map[string][]string{"linux-image-6.12.9-cloud-amd64": {"boot/vmlinuz-6.12.9"}},
		"linux-image-6.12.10-cloud-amd64")
	folder, err := fetch(t, "amd64/6.12", "sid")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(folder, "linux-image-6.12.9-cloud-amd64_7.0.2-1_amd64"))
}

func TestCacheAnswersWithoutTheArchive(t *testing.T) {
	cache := emptyCache(t)
	fakeCommands(t, map[string]string{"apt-get": "echo 'E: no network' >&2; exit 100"})
	_, err := fetch(t, "amd64/6.12", "sid")
	qt.Check(t, qt.ErrorMatches(err, "(?s).*E: no network.*"))
	for _, name := range []string{
		"linux-image-6.12.9+deb13-cloud-amd64_6.12.9-1_amd64",
		"linux-image-6.12.10+deb13-cloud-amd64_6.12.10-1_amd64",
		"linux-image-6.18.1+deb13-cloud-amd64_6.18.1-1_amd64",
	} {
		dir := filepath.Join(cache, "linux", "amd64", name)
		qt.Assert(t, qt.IsNil(os.MkdirAll(dir, 0o755)))
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "kernel"), nil, 0o644)))
	}
	folder, err := fetch(t, "amd64/6.12", "sid")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(folder, "_6.12.10-1_"))
}

// A mirror that is being updated has a list of indexes and other indexes for
// some seconds.
func TestUpdateIsTriedAgainWhileTheMirrorIsUpdated(t *testing.T) {
	for _, test := range []struct {
		says  string
		tries int
	}{
		{"Hashes of expected file:", 8}, // four times, and as often for the index of now
		{"does not have a Release file", 2},
	} {
		emptyCache(t)
		tries := filepath.Join(t.TempDir(), "tries")
		fakeCommands(t, map[string]string{
			"sleep":     "",
			"apt-cache": "",
			"apt-get": `case "$*" in *indextargets*) echo sid http://mirror.example/; exit;; esac
				echo >>` + tries + "; echo 'E: " + test.says + "' >&2; exit 100",
		})
		_, err := fetch(t, "amd64/6.12", "sid")
		qt.Check(t, qt.ErrorMatches(err, "(?s).*"+test.says+".*"))
		made, err := os.ReadFile(tries)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(strings.Count(string(made), "\n"), test.tries))
	}
}

func TestMirrorIsTheMachines(t *testing.T) {
	cache := emptyCache(t)
	fakeCommands(t, map[string]string{
		"apt-cache": "",
		"apt-get": `case "$*" in *indextargets*) echo "bookworm http://mirror.example/debian/
bookworm-updates http://mirror.example/debian/
bookworm-security http://mirror.example/security/
stable http://another.example/packages/";; esac`,
	})
	_, err := fetch(t, "amd64/6.12", "trixie-security", "trixie")
	qt.Check(t, qt.ErrorMatches(err, "(?s).*no kernel of series 6.12 for amd64 in trixie-security trixie.*"))
	list, err := os.ReadFile(filepath.Join(cache, "apt", "amd64-6.12", "sources.list"))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Matches(string(list), `deb .*http://mirror.example/security/ trixie-security main
deb .*http://mirror.example/debian/ trixie main
`))
	fakeCommands(t, map[string]string{"apt-get": ""})
	_, err = fetch(t, "amd64/6.12", "trixie-security", "trixie")
	qt.Check(t, qt.ErrorMatches(err, "(?s).*no source of packages for trixie-security trixie .*"))
}
