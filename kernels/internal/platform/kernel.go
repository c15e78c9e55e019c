// SPDX-License-Identifier: BSD-2-Clause

package platform

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Newest is the series that stands for the newest kernel of all suites,
// backports and experimental included.
const Newest = "newest"

// LastKnown is the newest series that is known: docs/kernels.md has what it
// changes, and the tests pass on it. A run of the matrix says when Debian has a
// newer one.
const LastKnown = "7.3"

// Kernel is one line of the matrix: a series of kernels on a machine.
type Kernel struct {
	// Machine is the name of the machine.
	Machine string
	// Series is the first two numbers of the version, or Newest.
	Series string
	// Suites are Debian's suites that may hold the series. The newest kernel of
	// all of them is taken.
	Suites []string
	// Quick kernels are the ones worth their time in every run of the tests.
	Quick bool
	// File is a kernel of one's own, which has no series and no suites.
	File string
}

// String is the form that ParseKernel reads: "amd64/6.12". A file is not named:
// it is "amd64".
func (k Kernel) String() string {
	if k.File != "" {
		return k.Machine
	}
	return k.Machine + "/" + k.Series
}

// suites names the suites that hold a series, nil for one that is not known.
// What each series stands for:
//
//	5.10    no BPF cookie, and perf events instead of BPF links
//	6.1     a cookie, but no uprobe_multi link
//	6.12    uprobe_multi
//	6.18    the uprobe trampolines that overwrite the stack's red zone
//	7.2     those that do not
//	newest  what comes next
func suites(series string) []string {
	switch series {
	case "5.10":
		return []string{"bullseye-security", "bullseye"}
	case "6.1":
		return []string{"bookworm-security", "bookworm"}
	case "6.12":
		return []string{"trixie-security", "trixie"}
	case "6.18":
		// Backports keep the packages of a series for a while after they have
		// moved on.
		return []string{"trixie-backports"}
	case "7.2":
		return []string{"trixie-backports", "sid"}
	case Newest:
		return []string{"trixie-backports", "sid", "experimental"}
	}
	return nil
}

// All lists every kernel of the matrix. Debian has no s390x and no riscv64
// kernel that is older than these.
func All() []Kernel {
	list := []Kernel{
		{Machine: "amd64", Series: "5.10", Quick: true},
		{Machine: "amd64", Series: "6.1"},
		{Machine: "amd64", Series: "6.12"},
		{Machine: "amd64", Series: "6.18"},
		{Machine: "amd64", Series: "7.2"},
		{Machine: "amd64", Series: Newest, Quick: true},
		{Machine: "arm64", Series: "5.10"},
		{Machine: "arm64", Series: "6.12"},
		{Machine: "arm64", Series: Newest},
		{Machine: "s390x", Series: "6.1"},
		{Machine: "s390x", Series: "6.12"},
		{Machine: "s390x", Series: Newest},
		{Machine: "riscv64", Series: "6.12"},
		{Machine: "riscv64", Series: Newest},
	}
	for i := range list {
		list[i].Suites = suites(list[i].Series)
	}
	return list
}

// ParseKernel reads "MACHINE/SERIES", also for pairs that are not part of the
// matrix, such as arm64/6.18, and "MACHINE=FILE". A series that Debian's suites
// are not known to hold is looked for among the backports.
func ParseKernel(s string) (Kernel, error) {
	if machine, file, ok := strings.Cut(s, "="); ok {
		_, err := MachineByName(machine)
		return Kernel{Machine: machine, File: file}, err
	}
	machine, series, ok := strings.Cut(s, "/")
	if !ok {
		return Kernel{}, fmt.Errorf("kernel %q: want MACHINE/SERIES, as in amd64/6.12 or s390x/%s",
			s, Newest)
	}
	if _, err := MachineByName(machine); err != nil {
		return Kernel{}, fmt.Errorf("kernel %q: %w", s, err)
	}
	for _, k := range All() {
		if k.Machine == machine && k.Series == series {
			return k, nil
		}
	}
	k := Kernel{Machine: machine, Series: series, Suites: suites(series)}
	if k.Suites == nil {
		if _, err := ParseRelease(series); err != nil {
			return Kernel{}, err
		}
		k.Suites = []string{"trixie-backports", "bookworm-backports", "sid", "experimental"}
	}
	return k, nil
}

// Has reports whether a kernel of that version belongs to k's series.
func (k Kernel) Has(r Release) bool {
	return k.Series == Newest || k.Series == r.String()
}

// Release is the version of a kernel, without its third number.
type Release struct {
	Major, Minor int
}

var releasePattern = regexp.MustCompile(`^(\d{1,9})\.(\d{1,9})`)

// ParseRelease reads a kernel version. What follows the first two numbers
// (".117-cloud-amd64", "+deb13") is ignored.
func ParseRelease(s string) (Release, error) {
	match := releasePattern.FindStringSubmatch(s)
	if match == nil {
		return Release{}, fmt.Errorf("kernel version %q: want MAJOR.MINOR[.PATCH]", s)
	}
	major, _ := strconv.Atoi(match[1])
	minor, _ := strconv.Atoi(match[2])
	return Release{major, minor}, nil
}

// AtLeast reports whether r is major.minor or newer.
func (r Release) AtLeast(major, minor int) bool {
	return r.Major > major || r.Major == major && r.Minor >= minor
}

// String is the name of the series, as in "6.12".
func (r Release) String() string { return fmt.Sprintf("%d.%d", r.Major, r.Minor) }
