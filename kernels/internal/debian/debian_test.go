// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/kernels/internal/platform"
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

// A mirror that is being updated has a list of indexes and other indexes for
// some seconds.
func TestUpdateIsTriedAgainWhileTheMirrorIsUpdated(t *testing.T) {
	waits := updateWaits
	updateWaits = make([]time.Duration, 2)
	t.Cleanup(func() { updateWaits = waits })
	for _, test := range []struct {
		name, says string
		failures   int // after which it succeeds
		tries      int
		fails      bool
	}{
		{"succeeds", "", 0, 1, false},
		{"is half updated for a while", "Hashes of expected file:", 2, 3, false},
		{"stays half updated", "Hashes of expected file:", 9, 3, true},
		{"has no such suite", "does not have a Release file", 9, 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			tries := filepath.Join(dir, "tries")
			fakeCommands(t, map[string]string{"apt-get": "echo >>" + tries + "\n" +
				"[ $(wc -l <" + tries + ") -gt $FAILURES ] || " +
				"{ echo 'E: " + test.says + "' >&2; exit 100; }\n"})
			t.Setenv("FAILURES", string(rune('0'+test.failures)))
			err := (&apt{dir}).update(t.Context(), true)
			qt.Check(t, qt.Equals(err != nil, test.fails), qt.Commentf("%v", err))
			made, err := os.ReadFile(tries)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(strings.Count(string(made), "\n"), test.tries))
			_, err = os.Stat(filepath.Join(dir, "updated"))
			qt.Check(t, qt.Equals(err != nil, test.fails))
		})
	}
}

func TestMirrorIsTheMachines(t *testing.T) {
	list, err := sourceList("bookworm http://mirror.example/debian/\n"+
		"bookworm-updates http://mirror.example/debian/\n"+
		"bookworm-security http://mirror.example/security/\n"+
		"stable http://another.example/packages/\n", "deb", []string{"trixie-security", "sid"})
	qt.Assert(t, qt.IsNil(err))
	lines := strings.Split(list, "\n")
	qt.Assert(t, qt.HasLen(lines, 3))
	qt.Check(t, qt.Matches(lines[0], `deb .*http://mirror.example/security/ trixie-security main`))
	qt.Check(t, qt.Matches(lines[1], `deb .*http://mirror.example/debian/ sid main`))

	list, err = sourceList("sid http://mirror.example/\n", "deb-src", []string{"x-security", "sid"})
	qt.Assert(t, qt.IsNil(err), qt.Commentf("the security updates are left out"))
	qt.Check(t, qt.Matches(list, `deb-src .*http://mirror.example/ sid main\n`))
	_, err = sourceList("\n", "deb", []string{"sid"})
	qt.Check(t, qt.ErrorMatches(err, "the machine has no source of packages for sid .*"))
}

func TestNewestKernelOfASeries(t *testing.T) {
	names := strings.Fields(`
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
		linux-image- linux-image-s390x`)
	for kernel, want := range map[string]string{
		"amd64/5.10":   "linux-image-5.10.0-32-cloud-amd64-unsigned",
		"amd64/6.12":   "linux-image-6.12.107+deb13-cloud-amd64-unsigned",
		"amd64/7.2":    "linux-binary-7.2.13+deb14-cloud-amd64",
		"amd64/newest": "linux-binary-7.3.4+deb13-cloud-amd64",
		"arm64/6.1":    "linux-image-6.1.0-0.deb11.52-cloud-arm64",
		"amd64/6.1":    "",
		"s390x/6.12":   "",
	} {
		k, err := platform.ParseKernel(kernel)
		qt.Assert(t, qt.IsNil(err))
		got, ok := newestKernel(names, k)
		qt.Check(t, qt.Equals(ok, want != ""), qt.Commentf("%s", kernel))
		qt.Check(t, qt.Equals(got, want), qt.Commentf("%s", kernel))
	}
}

func TestCacheAnswersWithoutTheArchive(t *testing.T) {
	fakeCommands(t, map[string]string{"apt-get": "echo 'E: no network' >&2; exit 100"})
	c := &Cache{Dir: t.TempDir()}
	k, err := platform.ParseKernel("amd64/6.12")
	qt.Assert(t, qt.IsNil(err))
	_, err = c.Kernel(t.Context(), k)
	qt.Check(t, qt.ErrorMatches(err, "kernel amd64/6.12: .*: E: no network"))
	for _, name := range []string{
		"linux-image-6.12.9+deb13-cloud-amd64_6.12.9-1_amd64",
		"linux-image-6.12.10+deb13-cloud-amd64_6.12.10-1_amd64",
		"linux-image-6.18.1+deb13-cloud-amd64_6.18.1-1_amd64",
	} {
		dir := filepath.Join(c.Dir, "linux", "amd64", name)
		qt.Assert(t, qt.IsNil(os.MkdirAll(dir, 0o755)))
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "kernel"), nil, 0o644)))
	}
	image, err := c.Kernel(t.Context(), k)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(image.Version, "6.12.10-1"))
	qt.Check(t, qt.ErrorMatches(image.Stale, ".*no network"))
}

// archive pretends to be a Debian archive with one kernel, which has a package
// of modules if it has such a file.
func archive(t *testing.T, modules bool) {
	t.Helper()
	dir := t.TempDir()
	build := func(name string, files ...string) {
		tree := filepath.Join(dir, name)
		files = append(files, "DEBIAN/control")
		for _, file := range files {
			text := "Package: " + name + "\nVersion: 7.0.2-1\nArchitecture: all\n" +
				"Maintainer: Nobody <nobody@example.org>\nDescription: a test\n"
			qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(filepath.Join(tree, file)), 0o755)))
			qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(tree, file), []byte(text), 0o644)))
		}
		out, err := exec.Command("dpkg-deb", "--build", tree,
			filepath.Join(dir, name+"_7.0.2-1_amd64.deb")).CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	}
	build("linux-binary-7.0.2+deb13-cloud-amd64", "usr/lib/modules/7.0.2/vmlinuz", "boot/config-7.0.2")
	if modules {
		build("linux-modules-7.0.2+deb13-cloud-amd64", "usr/lib/modules/7.0.2/kernel/fs/fuse.ko",
			"usr/lib/modules/7.0.2/kernel/fs/overlay.ko", "usr/lib/modules/7.0.2/kernel/fs/xfs.ko")
	}
	fakeCommands(t, map[string]string{
		"apt-cache": "echo linux-binary-7.0.2+deb13-cloud-amd64 linux-headers-7.0.2",
		"apt-get": "for last; do :; done; file=" + dir + "/${last}_7.0.2-1_amd64.deb\n" +
			`case "$*" in
			*indextargets*) echo sid http://mirror.example/;;
			*update*) ;;
			*) [ -e $file ] || { echo "E: no candidate" >&2; exit 100; }
			   case "$*" in *print-uris*) echo "'http:x' ${file##*/} 1 2";; *) cp $file .;; esac;;
			esac`,
	})
}

func TestKernelIsTakenWithItsModulesIfThereAreAny(t *testing.T) {
	testneeds.Tool(t, "dpkg-deb", "dpkg")
	k, err := platform.ParseKernel("amd64/7.0")
	qt.Assert(t, qt.IsNil(err))
	for _, modules := range []bool{true, false} {
		archive(t, modules)
		image, err := (&Cache{Dir: t.TempDir()}).Kernel(t.Context(), k)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsNil(image.Stale))
		qt.Check(t, qt.Equals(image.Version, "7.0.2-1"))
		_, err = os.Stat(image.Path)
		qt.Check(t, qt.IsNil(err))
		var names []string
		for _, module := range image.Modules {
			names = append(names, filepath.Base(module))
		}
		want := []string{"fuse.ko", "overlay.ko"}
		if !modules {
			want = nil
		}
		qt.Check(t, qt.DeepEquals(names, want))
	}
}

func TestCompressedModulesAreUncompressed(t *testing.T) {
	xz := testneeds.Tool(t, "xz", "xz-utils")
	tree, target := t.TempDir(), t.TempDir()
	qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Join(tree, "boot"), 0o755)))
	for name, text := range map[string]string{"boot/vmlinux-6.1": "a kernel", "fuse.ko": "a module"} {
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644)))
	}
	qt.Assert(t, qt.IsNil(exec.Command(xz, filepath.Join(tree, "fuse.ko")).Run()))
	qt.Assert(t, qt.IsNil(takeKernel(t.Context(), tree, target)))
	text, err := os.ReadFile(filepath.Join(target, "fuse.ko"))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(text), "a module"))
	qt.Check(t, qt.ErrorMatches(takeKernel(t.Context(), t.TempDir(), target), "it has no kernel"))
}

func TestKernelIsFoundInItsPackage(t *testing.T) {
	for name, want := range map[string]bool{
		"boot/vmlinuz-6.12.107+deb13-cloud-amd64":               true,
		"boot/vmlinux-6.12.107+deb13-riscv64":                   true,
		"usr/lib/modules/7.2.13+deb14-s390x/vmlinuz":            true,
		"boot/System.map-6.12.107+deb13-cloud-amd64":            false,
		"usr/share/doc/linux-image-6.12.107+deb13/vmlinuz-note": false,
		"boot/": false,
	} {
		qt.Check(t, qt.Equals(isKernel(name), want), qt.Commentf("%s", name))
	}
}

func TestFetchIsTriedAgainWithTheIndexOfNow(t *testing.T) {
	fakeCommands(t, map[string]string{"apt-get": "exit 0"})
	a, tries := &apt{t.TempDir()}, 0
	qt.Check(t, qt.IsNil(a.retry(t.Context(), func() error {
		if tries++; tries == 1 {
			return errors.New("404")
		}
		return nil
	})))
	qt.Check(t, qt.Equals(tries, 2))
}

func TestCodenameOfTheRelease(t *testing.T) {
	qt.Check(t, qt.Equals(codename("ID=debian\nVERSION_CODENAME=bookworm\n"), "bookworm"))
	qt.Check(t, qt.Equals(codename(`VERSION_CODENAME="trixie"`), "trixie"))
	qt.Check(t, qt.Equals(codename("ID=arch\n"), ""))
}
