// SPDX-License-Identifier: BSD-2-Clause

package platform

import (
	"fmt"
	"strconv"
	"strings"
)

// Release is the version of a kernel: the three numbers that `uname -r`
// starts with.
type Release struct {
	Major, Minor, Patch int
}

// ParseRelease reads a kernel version. What follows the numbers
// ("-cloud-amd64", "+deb13") is ignored; a missing patch number is 0.
func ParseRelease(s string) (Release, error) {
	var numbers [3]int
	rest := s
	for i := range numbers {
		end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
		digits := rest
		if end >= 0 {
			digits = rest[:end]
		}
		n, err := strconv.Atoi(digits)
		if err != nil {
			return Release{}, fmt.Errorf("kernel version %q: want MAJOR.MINOR[.PATCH]", s)
		}
		numbers[i] = n
		rest = rest[len(digits):]
		// A dot that no digit follows belongs to what is ignored.
		if len(rest) < 2 || rest[0] != '.' || rest[1] < '0' || rest[1] > '9' {
			if i == 0 {
				return Release{}, fmt.Errorf("kernel version %q: want MAJOR.MINOR[.PATCH]", s)
			}
			break
		}
		rest = rest[1:]
	}
	return Release{numbers[0], numbers[1], numbers[2]}, nil
}

// AtLeast reports whether r is major.minor or newer.
func (r Release) AtLeast(major, minor int) bool {
	return r.Major > major || r.Major == major && r.Minor >= minor
}

// Series is the first two numbers, as in "6.12".
func (r Release) Series() string { return fmt.Sprintf("%d.%d", r.Major, r.Minor) }

// String is all three numbers, as in "6.12.117".
func (r Release) String() string { return fmt.Sprintf("%d.%d.%d", r.Major, r.Minor, r.Patch) }
