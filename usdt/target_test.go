// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"debug/elf"
	"strings"
	"testing"
	"unsafe"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
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

// The strings of a site that is held keep no others in memory.
func TestCopyStrings(t *testing.T) {
	all := strings.Repeat("x", 8<<10) + "provider" + "name" + "8@%rax"
	site := elfnote.Site{Provider: all[8<<10:][:8], Name: all[8<<10+8:][:4], Arguments: all[8<<10+12:]}
	copied := site
	copyStrings(&copied, nil)
	qt.Check(t, qt.Equals(copied, site))
	qt.Check(t, qt.IsFalse(unsafe.StringData(copied.Name) == unsafe.StringData(site.Name)))
	again := site
	copyStrings(&again, []Site{{Site: copied}})
	qt.Check(t, qt.Equals(again, site))
	qt.Check(t, qt.IsTrue(unsafe.StringData(again.Name) == unsafe.StringData(copied.Name)))
}
