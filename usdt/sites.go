// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/internal/sys"
)

// A Site is one place in a file where a probe is, with its arguments.
type Site struct {
	elfnote.Site

	// Instruction is the address of the instruction that gets the breakpoint:
	// the instruction pointer at a hit. It is the same as Location, except on
	// kernels that turn a ten-byte nop into a call without a trap (x86-64,
	// Linux 7.2). There, if the site holds a one-byte nop followed by a
	// ten-byte one, it is the address of the ten-byte one.
	Instruction uint64

	// Args are the arguments, in their order. An argument that cannot be
	// fetched is among them, and its Err says why. The slice is shared with
	// other sites and must not be changed.
	Args []argspec.Arg
}

// uprobeOffset is the file offset of the instruction to attach to.
func (s *Site) uprobeOffset() uint64 { return s.Offset + (s.Instruction - s.Location) }

// argumentList identifies the list of arguments, which sites share.
func (s *Site) argumentList() *argspec.Arg {
	if len(s.Args) == 0 {
		return nil
	}
	return &s.Args[0]
}

// maxArguments is the most arguments that the sites of a Selection may have.
// Sites with equal arguments count once. A file is untrusted, and an argument
// of a few bytes in it takes some 170 in memory: this many take 90 MB, or 240
// MB if each names another symbol. Of real files libjvm has the most, 750 sites
// with 2,000 arguments. The error for more of them wraps elffile.ErrTooLarge.
const maxArguments = 1 << 19

// argumentsPerSite is the number of arguments allowed for each site of
// [Target].MaxSites.
const argumentsPerSite = 4

// decodeArguments decodes the arguments of the sites, whose instructions are
// known. A string that means the same at each site is decoded once: most sites
// of a file share few.
func (s *Selection) decodeArguments() error {
	known, count := make(map[string][]argspec.Arg), 0
	for i := range s.sites {
		site := &s.sites[i]
		args, isKnown := known[site.Arguments]
		if !isKnown {
			args = argspec.Decode(nil, s.opened.elf, site.Instruction, site.Arguments)
			if !slices.ContainsFunc(args, isRelative) {
				known[site.Arguments] = args
			}
			count += len(args)
		}
		site.Args = args
		if limit := argumentsPerSite * s.maxSites; limit > 0 && count > limit {
			return follow.TooMany(s.opened.name, "different arguments", limit, count)
		}
		if count > maxArguments {
			return fmt.Errorf("%s: more than %d arguments of probes: %w", s.opened.name, maxArguments,
				elffile.ErrTooLarge)
		}
	}
	return nil
}

// isRelative reports whether an argument depends on the address of its site.
func isRelative(a argspec.Arg) bool {
	return a.Base.Name == "rip" || a.Base.Name == "eip" || a.Base.Name == "pc"
}

// Sites closer together than nearSites are read by one call: copying that much
// costs less than another call. No read is longer than the buffer, which stays
// in the processor's second-level cache.
const nearSites = 4 << 10

// readCode calls found with the index of each site and the machine code there,
// up to n bytes: fewer where the file ends, and then err may say why. It reads
// neighbouring sites together, in the order of their offsets. The bytes are
// valid during the call.
func readCode(
	file *elfnote.File, sites []Site, n uint64, found func(i int, code []byte, err error),
) {
	order := make([]int32, len(sites))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(sites[a].Offset, sites[b].Offset), cmp.Compare(a, b))
	})
	buffer := elffile.NewBuffer()
	defer buffer.Free()
	for from, to := 0, 0; from < len(order); from = to {
		first := sites[order[from]].Offset
		end := first + n
		for to = from + 1; to < len(order); to++ {
			next := sites[order[to]].Offset
			if next > end+nearSites || next+n-first > uint64(len(buffer)) {
				break
			}
			end = next + n
		}

		code := buffer[:end-first]
		read, err := file.OSFile().ReadAt(code, int64(first))
		for _, i := range order[from:to] {
			at := min(int(sites[i].Offset-first), read)
			found(int(i), code[at:min(at+int(n), read)], err)
		}
	}
}

// attachable returns an error if the kernel can attach to no site of a file.
func attachable(file *elfnote.File) error {
	switch {
	case file.IsDebugFile():
		return errors.New("a separate debug file has no machine code: attach to the file it belongs to")
	case file.Header().Type == elf.ET_REL:
		return errors.New("an object file is not linked yet: attach to what is made of it")
	}
	kernel, err := sys.KernelMachine()
	if err != nil {
		return err
	}
	if header := file.Header(); !attaches(kernel, header.Machine) ||
		header.ByteOrder.Uint16([]byte{1, 0}) != binary.NativeEndian.Uint16([]byte{1, 0}) {
		return fmt.Errorf("the file is for %s (%s), this kernel attaches to programs for %s",
			header.Machine, header.ByteOrder, kernel)
	}
	return nil
}

// attaches reports whether a kernel of one machine takes uprobes in programs
// for another. A kernel for arm64 runs 32-bit programs, but takes no uprobes in
// them (arch_uprobe_analyze_insn).
func attaches(kernel, program elf.Machine) bool {
	return kernel == program || kernel == elf.EM_X86_64 && program == elf.EM_386
}
