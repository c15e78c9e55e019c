// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/ldso"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// seenSite is what both usdtlist and readelf say about a site.
type seenSite struct {
	Provider, Name, Arguments string
	Location, Base, Semaphore uint64
}

// On files that nobody here wrote, and on those of other machines, usdtlist
// says about every site what readelf -n says.
func TestAgreesWithReadelf(t *testing.T) {
	testneeds.Tool(t, "readelf", "binutils")
	for name, atLeast := range map[string]int{
		"testdata/shop-amd64": 8, "testdata/shop-arm64": 8, "testdata/shop-s390x": 8,
		"testdata/shop-i386":        8,
		"testdata/shop-amd64.debug": 8,
	} {
		t.Run(filepath.Base(name), func(t *testing.T) { compareWithReadelf(t, name, atLeast) })
	}

	// Installed software: where it is, and how many sites it has at least.
	for _, software := range []struct {
		name    string
		glob    string
		atLeast int
		debian  string // the package, or "" for what is compared if it is there
	}{
		{"libstdc++", "", 3, "libstdc++6"},
		{"python3", "/usr/bin/python3.*[0-9]", 5, "python3"}, // 3.12 to 3.14 have no more
		{"postgres", "/usr/lib/postgresql/*/bin/postgres", 50, "postgresql"},
		{"libjvm", "/usr/lib/jvm/*/lib/server/libjvm.so", 400, "default-jre-headless"},
		{"libruby", "/usr/lib/*/libruby*.so.*.*", 10, ""},
		{"php", "/usr/bin/php[0-9]*", 5, ""},
		{"libvirt", "/usr/lib/*/libvirt.so.0", 5, ""},
	} {
		t.Run(software.name, func(t *testing.T) {
			files, err := filepath.Glob(software.glob)
			qt.Assert(t, qt.IsNil(err))
			if software.glob == "" {
				if path, err := ldso.Find(software.name); err == nil {
					files = []string{path}
				}
			}
			if len(files) == 0 && software.debian != "" {
				testneeds.Missing(t, "needs %s (Debian: %s)", software.name, software.debian)
			}
			for _, file := range files {
				compareWithReadelf(t, file, software.atLeast)
			}
		})
	}

	for _, arch := range []string{"amd64", "386", "arm64", "riscv64", "s390x"} {
		for _, name := range []string{"target-pie", "target-static", "libtarget.so",
			"target-stripped.debug"} {
			t.Run("traced programs/"+arch+"/"+name, func(t *testing.T) {
				compareWithReadelf(t, testprog.CrossPath(t, arch, name), 300)
			})
		}
	}
}

// Object files have locations that are still to be relocated, with the addends
// beside the notes or in them.
func TestAgreesWithReadelfOnObjectFiles(t *testing.T) {
	testneeds.Tool(t, "readelf", "binutils")
	host := testneeds.Tool(t, "gcc", "gcc")
	machine, err := exec.Command(host, "-print-multiarch").Output()
	qt.Assert(t, qt.IsNil(err))
	headers := filepath.Join("/usr/include", strings.TrimSpace(string(machine)))
	if _, err := os.Stat(filepath.Join(headers, "sys/sdt.h")); err != nil {
		testneeds.Missing(t, "needs sys/sdt.h (Debian: systemtap-sdt-dev)")
	}
	for _, compiler := range []string{host, "i686-linux-gnu-gcc", "aarch64-linux-gnu-gcc",
		"riscv64-linux-gnu-gcc", "s390x-linux-gnu-gcc"} {
		t.Run(filepath.Base(compiler), func(t *testing.T) {
			testneeds.Tool(t, compiler, filepath.Base(compiler))
			dir := t.TempDir()
			for i, flag := range []string{"-O0", "-O2", "-ffunction-sections"} {
				object := filepath.Join(dir, fmt.Sprintf("the_object_file_number_%d.o", i))
				command := exec.Command(compiler, "-c", "-g", "-fPIC", flag, "-idirafter", headers,
					"-o", object, "testdata/src/shop.c")
				output, err := command.CombinedOutput()
				qt.Assert(t, qt.IsNil(err), qt.Commentf("%v: %s", command, output))
				compareWithReadelf(t, object, 8)
			}
		})
	}
}

func compareWithReadelf(t *testing.T, file string, atLeast int) {
	t.Helper()
	want := readelfSites(t, file)
	got := usdtlistSites(t, file)
	if len(want) < atLeast {
		t.Errorf("%s: readelf lists %d sites, want %d at least", file, len(want), atLeast)
	}
	if qt.Check(t, qt.DeepEquals(got, want), qt.Commentf("%s", file)) {
		t.Logf("%s: %d sites agree", file, len(want))
	}
}

func usdtlistSites(t *testing.T, file string) []seenSite {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if status := run([]string{"--json", file}, &stdout, &stderr); status == exitError {
		t.Fatalf("usdtlist --json %s: %s", file, stderr.String())
	}
	var document struct {
		Files []struct {
			Probes []struct {
				Provider, Name string
				Sites          []seenSite
			}
			Malformed []struct{} `json:"malformed_notes"`
		}
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(stdout.Bytes(), &document)))
	qt.Assert(t, qt.Equals(len(document.Files), 1))
	var sites []seenSite
	for _, listed := range document.Files {
		qt.Assert(t, qt.Equals(len(listed.Malformed), 0), qt.Commentf("%s: %s", file, &stderr))
		for _, probe := range listed.Probes {
			for _, site := range probe.Sites {
				site.Provider, site.Name = probe.Provider, probe.Name
				sites = append(sites, site)
			}
		}
	}
	if len(document.Files) > 1 {
		return slices.Compact(sorted(sites)) // as of readelf's
	}
	return sorted(sites)
}

// readelfSites reads the sites from what readelf prints, each once.
func readelfSites(t *testing.T, file string) []seenSite {
	t.Helper()
	out, err := exec.Command("readelf", "-n", file).Output()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("readelf -n %s", file))
	var sites []seenSite
	var site seenSite
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if s, ok := strings.CutPrefix(line, "    Provider: "); ok {
			site = seenSite{Provider: s}
		} else if s, ok := strings.CutPrefix(line, "    Name: "); ok {
			site.Name = s
		} else if strings.HasPrefix(line, "    Location: ") {
			_, err := fmt.Sscanf(strings.TrimSpace(line), "Location: %v, Base: %v, Semaphore: %v",
				&site.Location, &site.Base, &site.Semaphore)
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s: %q", file, line))
		} else if s, ok := strings.CutPrefix(line, "    Arguments: "); ok {
			site.Arguments = s
			sites = append(sites, site)
		}
	}
	qt.Assert(t, qt.IsNil(lines.Err()))
	return slices.Compact(sorted(sites)) // usdtlist lists identical ones once
}

func sorted(sites []seenSite) []seenSite {
	slices.SortFunc(sites, func(a, b seenSite) int {
		return strings.Compare(fmt.Sprintf("%016x %+v", a.Location, a),
			fmt.Sprintf("%016x %+v", b.Location, b))
	})
	return sites
}
