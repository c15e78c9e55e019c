// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

// Package is one package of an index.
type Package struct {
	Name, Version string
	// Size is the size of the package's file in bytes.
	Size int64
}

// MaxIndexLine is the longest line of an index that is read. The longest ones
// are lists of what a package provides, some tens of kilobytes.
const MaxIndexLine = 1 << 20

// ReadIndex reads a Packages index and returns the packages whose names keep
// accepts, in the order of the index.
func ReadIndex(r io.Reader, keep func(name string) bool) ([]Package, error) {
	var list []Package
	var p Package
	end := func() {
		if p.Name != "" && keep(p.Name) {
			list = append(list, p)
		}
		p = Package{}
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, MaxIndexLine)
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			end()
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch field {
		case "Package":
			p.Name = value
		case "Version":
			p.Version = value
		case "Size":
			size, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("reading an index of packages: size of %s: %w", p.Name, err)
			}
			p.Size = size
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading an index of packages: %w", err)
	}
	end()
	return list, nil
}

// smallestKernel is less than any kernel's package, and more than those that
// only ask for another package: from 6.19 on, linux-image-VERSION asks for
// linux-binary-VERSION, which holds the kernel.
const smallestKernel = 1 << 20

// IsKernel reports whether a package of that name may hold a kernel of the
// flavour: linux-image-VERSION-FLAVOUR or linux-binary-VERSION-FLAVOUR, with
// or without "-unsigned". (Names like linux-image-cloud-amd64, without a
// version, only ask for another package.)
func IsKernel(name, flavour string) bool {
	rest, image := strings.CutPrefix(name, "linux-image-")
	if !image {
		var binary bool
		if rest, binary = strings.CutPrefix(name, "linux-binary-"); !binary {
			return false
		}
	}
	rest = strings.TrimSuffix(rest, "-unsigned")
	version, ok := strings.CutSuffix(rest, "-"+flavour)
	if !ok || version == "" || version[0] < '0' || version[0] > '9' {
		return false
	}
	// "6.12.117+deb13", "6.1.0-56", "6.1.0-0.deb11.52", but no further flavour
	// ("6.12.117+deb13-rt"), and not "6.1" alone, which asks for another.
	for _, part := range strings.Split(version, "-") {
		if part == "" || part[0] < '0' || part[0] > '9' {
			return false
		}
	}
	return true
}

// NewestKernel returns the newest package with a kernel of k's series.
func NewestKernel(packages []Package, k platform.Kernel) (newest Package, ok bool) {
	machine, err := platform.MachineByName(k.Machine)
	if err != nil {
		return Package{}, false
	}
	for _, p := range packages {
		if !IsKernel(p.Name, machine.Flavour) || p.Size < smallestKernel {
			continue
		}
		release, err := platform.ParseRelease(p.Version)
		if err != nil || !k.Has(release) {
			continue
		}
		// Of two names for one version, signed and unsigned, the first will do.
		if !ok || CompareVersions(p.Version, newest.Version) > 0 {
			newest, ok = p, true
		}
	}
	return newest, ok
}
