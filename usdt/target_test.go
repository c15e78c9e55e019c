// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"debug/elf"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
)

func TestAttachesToMachines(t *testing.T) {
	for _, tc := range []struct {
		kernel, program elf.Machine
		want            bool
	}{
		{elf.EM_X86_64, elf.EM_X86_64, true},
		{elf.EM_X86_64, elf.EM_386, true},
		{elf.EM_X86_64, elf.EM_AARCH64, false},
		{elf.EM_AARCH64, elf.EM_AARCH64, true},
		{elf.EM_AARCH64, elf.EM_ARM, false}, // although it runs them
	} {
		qt.Check(t, qt.Equals(attaches(tc.kernel, tc.program), tc.want),
			qt.Commentf("%s on %s", tc.program, tc.kernel))
	}
}

// The links to a thousand processes do not each hold the sites of the file.
func TestSitesAreSharedWithObjectsOfLibbpf(t *testing.T) {
	layout, base := &sitespec.Layout{IsLibbpf: true}, argspec.Register{Name: "rbp"}
	known := argspec.Arg{Kind: argspec.Memory, Base: base}
	s := &Selection{sites: []Site{{}, {Args: []argspec.Arg{known, known}}}}
	qt.Check(t, qt.Equals(s.limitedTo(layout), s))

	s.sites = append(s.sites, Site{Args: []argspec.Arg{known, {Kind: argspec.Address}}})
	limited := s.limitedTo(layout)
	qt.Check(t, qt.Equals(&limited.sites[1].Args[0], &s.sites[1].Args[0]))
	qt.Check(t, qt.IsNil(s.sites[2].Args[1].Err))
	qt.Check(t, qt.IsNil(limited.sites[2].Args[0].Err))
	qt.Check(t, qt.ErrorMatches(limited.sites[2].Args[1].Err,
		".* does not know an address as a value.*"))
	qt.Check(t, qt.Equals(limited.sites[2].Args[1].Kind, argspec.Unavailable))
}
