// SPDX-License-Identifier: BSD-2-Clause

package sitespec

import (
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
)

var fuzzMachines = []elf.Machine{
	elf.EM_X86_64, elf.EM_386, elf.EM_AARCH64, elf.EM_ARM, elf.EM_S390,
	elf.EM_PPC64, elf.EM_RISCV, elf.EM_LOONGARCH, elf.EM_MIPS,
}

// FuzzEncode checks that a spec means the same as its arguments.
func FuzzEncode(f *testing.F) {
	for i, test := range golden {
		machine := slices.Index(fuzzMachines, test.program)
		kernel := slices.Index(fuzzMachines, test.kernel)
		f.Add(uint8(machine), uint8(kernel), i%2 == 0, uint64(i), test.text)
	}
	f.Fuzz(func(t *testing.T, machine, kernel uint8, big bool, cookie uint64, text string) {
		on := fuzzMachines[int(kernel)%len(fuzzMachines)]
		var order binary.ByteOrder = binary.LittleEndian
		if big {
			order = binary.BigEndian
		}
		args := decode(fuzzMachines[int(machine)%len(fuzzMachines)], text)
		spec := Encode(on, order, cookie, args)
		qt.Assert(t, qt.Equals(spec, Encode(on, order, cookie, args)))
		qt.Assert(t, qt.Equals(order.Uint64(spec[192:]), cookie))
		count := int(order.Uint16(spec[200:]))
		qt.Assert(t, qt.Equals(count, min(len(args), MaxArgs)))
		qt.Assert(t, qt.Equals(strings.Trim(string(spec[count*16:192]), "\x00"), ""))
		for i, a := range args[:count] {
			checkEncoded(t, a, on, spec[i*16:][:16], order)
		}
	})
}

func checkEncoded(
	t *testing.T, a argspec.Arg, kernel elf.Machine, b []byte, order binary.ByteOrder,
) {
	slot := func(r argspec.Register) uint8 {
		if n, ok := r.Slot(kernel); ok {
			return uint8(n)
		}
		return 0xff
	}
	located := argcode.Readable(&a, kernel) || a.Kind == argspec.Bytes && slot(a.Base) != 0xff
	qt.Assert(t, qt.Equals(b[8] != 0, located))
	if a.Size <= 255 {
		qt.Assert(t, qt.Equals(int(b[9]), a.Size))
	}
	if !located {
		qt.Assert(t, qt.Equals(b[15], 0))
		qt.Assert(t, qt.Equals(order.Uint64(b), 0))
		return
	}
	qt.Assert(t, qt.Equals(b[10]&1 != 0, a.Signed))
	qt.Assert(t, qt.Equals(b[10]&2 != 0, a.Address32))
	qt.Assert(t, qt.Equals(b[10]&4 != 0, a.IndexSize == 4))
	qt.Assert(t, qt.Equals(b[10]&8 != 0, a.IndexSize == -4))
	qt.Assert(t, qt.Equals(b[10]&16 != 0, a.High.Name != ""))
	switch a.Kind {
	case argspec.Constant:
		qt.Assert(t, qt.Equals(b[8], 1))
		qt.Assert(t, qt.Equals(order.Uint64(b), a.Constant))
	case argspec.InRegister:
		qt.Assert(t, qt.Equals(b[12], slot(a.Register)))
		qt.Assert(t, qt.Equals(b[11], a.Register.Shift))
		qt.Assert(t, qt.Not(qt.Equals(b[12], 0xff)))
		qt.Assert(t, qt.Equals(b[13], slot(a.High)))
		if a.High.Name == "" {
			qt.Assert(t, qt.Equals(b[8], 2))
		} else {
			qt.Assert(t, qt.Equals(b[8], 4))
			qt.Assert(t, qt.Equals(b[14], 32))
		}
	default:
		kinds := map[argspec.Kind]uint8{argspec.Memory: 3, argspec.Address: 4, argspec.Bytes: 5}
		qt.Assert(t, qt.Equals(b[8], kinds[a.Kind]))
		qt.Assert(t, qt.Equals(int64(order.Uint64(b)), a.Displacement))
		qt.Assert(t, qt.Equals(b[12], slot(a.Base)))
		qt.Assert(t, qt.Equals(b[13], slot(a.Index)))
		qt.Assert(t, qt.Equals(uint8(1)<<b[14], a.Scale))
	}
}
