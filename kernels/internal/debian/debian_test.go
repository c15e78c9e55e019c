// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

func TestVersionsAreOrdered(t *testing.T) {
	// From the oldest to the newest.
	ordered := []string{
		"1.0~~",
		"1.0~rc1-1",
		"1.0",
		"1.0+deb",
		"5.10.99-1",
		"5.10.223-1",
		"6.12.95-1~bpo12+1",
		"6.12.95-1",
		"6.12.95-2",
		"6.12.107-1",
		"6.12.107+deb13-1",
		"10.0",
		"1:7.2+dfsg-7+deb12u18+b3",
		"1:10.0.2+ds-2+deb13u1~bpo12+1",
		"1:10.0.2+ds-2+deb13u1",
		"1:10.0.2+ds-2.1",
	}
	for i, a := range ordered {
		for j, b := range ordered {
			c := CompareVersions(a, b)
			switch {
			case i < j:
				qt.Check(t, qt.IsTrue(c < 0), qt.Commentf("%s before %s: got %d", a, b, c))
			case i > j:
				qt.Check(t, qt.IsTrue(c > 0), qt.Commentf("%s after %s: got %d", a, b, c))
			default:
				qt.Check(t, qt.Equals(c, 0), qt.Commentf("%s", a))
			}
		}
	}
}

func TestEqualVersionsMayLookDifferent(t *testing.T) {
	qt.Check(t, qt.Equals(CompareVersions("0:1.0-0", "1.0"), 0))
	qt.Check(t, qt.Equals(CompareVersions("1.007", "1.7"), 0))
}

func TestKernelPackagesAreToldByTheirNames(t *testing.T) {
	for _, tt := range []struct {
		name, flavour string
		want          bool
	}{
		{"linux-image-5.10.0-32-cloud-amd64-unsigned", "cloud-amd64", true},
		{"linux-image-5.10.0-32-cloud-amd64", "cloud-amd64", true},
		{"linux-image-6.1.0-0.deb11.52-cloud-arm64", "cloud-arm64", true},
		{"linux-image-6.12.115+deb13.1-cloud-amd64-unsigned", "cloud-amd64", true},
		{"linux-binary-7.2.13+deb14-cloud-amd64", "cloud-amd64", true},
		{"linux-image-6.12.107+deb13-s390x", "s390x", true},
		{"linux-image-6.12.107+deb13-riscv64", "riscv64", true},
		{"linux-image-cloud-amd64", "cloud-amd64", false},
		{"linux-image-6.12.107+deb13-cloud-amd64-dbg", "cloud-amd64", false},
		{"linux-image-6.12.107+deb13-rt-cloud-amd64", "cloud-amd64", false},
		{"linux-image-6.12.107+deb13-amd64", "cloud-amd64", false},
		{"linux-headers-6.12.107+deb13-cloud-amd64", "cloud-amd64", false},
		{"linux-image-", "s390x", false},
		{"linux-image-s390x", "s390x", false},
	} {
		qt.Check(t, qt.Equals(IsKernel(tt.name, tt.flavour), tt.want), qt.Commentf("%s", tt.name))
	}
}

const index = `Package: linux-image-6.12.95+deb12-cloud-amd64
Architecture: amd64
Version: 6.12.95-1~bpo12+1
Size: 33000000
Description: Linux 6.12 for x86-64 cloud
 Package: a line of the description, not a field

Package: linux-image-6.12.107+deb13-cloud-amd64-unsigned
Version: 6.12.107-1
Size: 34000000

Package: linux-image-6.12.99+deb13-cloud-amd64
Version: 6.12.99-1
Size: 34000000

Package: linux-image-6.12-cloud-amd64
Version: 6.12.200-1
Size: 1500

Package: linux-binary-7.2.9+deb14-cloud-amd64
Version: 7.2.9-1
Size: 13000000

Package: linux-image-7.2.13+deb14-cloud-amd64
Version: 7.2.13-1
Size: 1700

Package: linux-binary-7.2.13+deb14-cloud-amd64
Size: 13000000
Version: 7.2.13-1

Package: zsh
Version: 99
Size: 5000000
`

func TestNewestKernelOfASeries(t *testing.T) {
	packages, err := ReadIndex(strings.NewReader(index), func(string) bool { return true })
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(packages, 8))
	for _, tt := range []struct {
		kernel, want string
	}{
		{"amd64/6.12", "linux-image-6.12.107+deb13-cloud-amd64-unsigned"},
		{"amd64/newest", "linux-binary-7.2.13+deb14-cloud-amd64"},
		{"amd64/7.2", "linux-binary-7.2.13+deb14-cloud-amd64"},
		{"amd64/6.1", ""},
		{"arm64/6.12", ""},
	} {
		k, err := platform.ParseKernel(tt.kernel)
		qt.Assert(t, qt.IsNil(err))
		p, ok := NewestKernel(packages, k)
		qt.Check(t, qt.Equals(ok, tt.want != ""), qt.Commentf("%s", tt.kernel))
		qt.Check(t, qt.Equals(p.Name, tt.want), qt.Commentf("%s", tt.kernel))
	}
}

func TestBrokenIndexIsAnError(t *testing.T) {
	all := func(string) bool { return true }
	_, err := ReadIndex(strings.NewReader("Package: x\nSize: large\n"), all)
	qt.Check(t, qt.ErrorMatches(err, `reading an index of packages: size of x: .*`))
	_, err = ReadIndex(strings.NewReader(strings.Repeat("x", MaxIndexLine+1)), all)
	qt.Check(t, qt.ErrorMatches(err, `reading an index of packages: .*too long`))
}

func TestMirrorIsTheMachines(t *testing.T) {
	m := parseMirror("bookworm http://mirror.example/debian/\n" +
		"bookworm-updates http://mirror.example/debian/\n" +
		"bookworm-security http://mirror.example/security/\n" +
		"stable http://another.example/packages/\n")
	qt.Assert(t, qt.Equals(m, mirror{archive: "http://mirror.example/debian/",
		security: "http://mirror.example/security/"}))

	line, err := m.source("trixie-security")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.StringContains(line, "http://mirror.example/security/ trixie-security main\n"))
	line, err = m.source("sid")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.StringContains(line, "http://mirror.example/debian/ sid main\n"))

	_, err = mirror{archive: "x"}.source("trixie-security")
	qt.Assert(t, qt.ErrorMatches(err, ".*no source of security updates.*"))
	qt.Assert(t, qt.Equals(parseMirror("\n"), mirror{}))
}

func TestKernelIsFoundInItsPackage(t *testing.T) {
	for name, want := range map[string]bool{
		"./boot/vmlinuz-6.12.107+deb13-cloud-amd64":               true,
		"./boot/vmlinux-6.12.107+deb13-riscv64":                   true,
		"./usr/lib/modules/7.2.13+deb14-s390x/vmlinuz":            true,
		"./boot/System.map-6.12.107+deb13-cloud-amd64":            false,
		"./usr/share/doc/linux-image-6.12.107+deb13/vmlinuz-note": false,
		"./boot/": false,
	} {
		qt.Check(t, qt.Equals(isKernelFile(name), want), qt.Commentf("%s", name))
	}
}

func TestCacheAnswersWithoutTheArchive(t *testing.T) {
	c := &Cache{Dir: t.TempDir()}
	k, err := platform.ParseKernel("amd64/6.12")
	qt.Assert(t, qt.IsNil(err))
	dir := filepath.Join(c.Dir, "linux", "amd64")
	qt.Assert(t, qt.IsNil(os.MkdirAll(dir, 0o755)))
	for _, file := range []string{"linux-image-a_6.12.9-1", "linux-image-b_6.12.10-1",
		"linux-image-c_6.18.1-1"} {
		qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Join(dir, file), 0o755)))
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, file, kernelFile), nil, 0o644)))
	}

	newest, ok := c.cached(k)
	qt.Assert(t, qt.IsTrue(ok))
	qt.Assert(t, qt.Equals(newest.Version, "6.12.10-1"))
	_, ok = c.today(k)
	qt.Assert(t, qt.IsFalse(ok), qt.Commentf("nothing was remembered"))

	older := c.image("amd64", "linux-image-a_6.12.9-1")
	qt.Assert(t, qt.IsNil(c.remember(k, older)))
	remembered, ok := c.today(k)
	qt.Assert(t, qt.IsTrue(ok))
	qt.Assert(t, qt.DeepEquals(remembered, older))

	yesterday := time.Now().Add(-freshness - time.Hour)
	qt.Assert(t, qt.IsNil(os.Chtimes(c.note(k), yesterday, yesterday)))
	_, ok = c.today(k)
	qt.Assert(t, qt.IsFalse(ok), qt.Commentf("the note is too old"))
}

func TestCodenameOfTheRelease(t *testing.T) {
	qt.Check(t, qt.Equals(codename("ID=debian\nVERSION_CODENAME=bookworm\n"), "bookworm"))
	qt.Check(t, qt.Equals(codename(`VERSION_CODENAME="trixie"`), "trixie"))
	qt.Check(t, qt.Equals(codename("ID=arch\n"), ""))
}

func TestPackagesThatAreNotInstalledAreMissing(t *testing.T) {
	status := "make installed\nlld not-installed\ngcc installed\ngcc config-files\n"
	qt.Check(t, qt.DeepEquals(
		missingFrom([]string{"make", "lld", "gcc", "libc6-dev"}, status),
		[]string{"lld", "libc6-dev"},
	))
}
