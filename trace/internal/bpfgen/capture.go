// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
)

// capture emits what brings the bytes behind a pointer into the record.
func (b *builder) capture(r *Record, c *CapturePlace) {
	pointer := func(dst asm.Register) {
		if b.isBytes(c.Arg) {
			b.addressOf(dst, c.Arg, asm.R4)
			return
		}
		b.fromRecord(dst, r, c.Arg)
	}
	if c.Terminated() {
		b.readText(asm.R7, c.Data, c.Max+2, pointer)
		b.Emit(asm.StoreMem(asm.R7, int16(c.Status), asm.R0, asm.DWord))
		return
	}
	failed, done := b.Label(), b.Label()
	b.captureLength(r, c, failed)
	pointer(asm.R3)
	b.setCaptureSize(c)
	b.AddressOf(asm.R1, asm.R7, c.Data)
	b.Call(asm.FnProbeReadUser)
	b.JumpIfImm(asm.JNE, asm.R0, 0, asm.R1, failed)
	b.Emit(asm.StoreMem(asm.R7, int16(c.Status), asm.R9, asm.DWord))
	b.Place(done)
	b.Later(func() {
		b.Place(failed)
		b.SetField(asm.R7, c.Status, ^uint64(unix.EFAULT-1), asm.R1)
		b.Jump(done)
	})
}

// captureLength sets R9 to the number of bytes asked for.
func (b *builder) captureLength(r *Record, c *CapturePlace, failed argcode.Label) {
	switch {
	case b.isBytes(c.Arg):
		site := b.site
		if b.lookedUp {
			site = site.original
		}
		b.siteNumber(asm.R9, uint64(site.Args[c.Arg].Size))
		return
	case c.Length == None:
		b.Set(asm.R9, uint64(c.Max))
		return
	}
	if p := r.Args[c.Length]; p.Failed != None {
		// A length that could not be read is not 0.
		b.Emit(asm.LoadMem(asm.R1, asm.R7, int16(p.Failed), asm.Byte))
		b.JumpIfImm(asm.JNE, asm.R1, 0, asm.R2, failed)
	}
	if arg := &b.Args[c.Length]; arg.Kind == argspec.Constant {
		b.Set(asm.R9, arg.Constant)
	} else {
		b.fromRecord(asm.R9, r, c.Length)
		b.Extend(asm.R9, arg)
	}
	// The status has no room for lengths that a signed number has not, and a
	// negative length is none.
	b.JumpIfImm(asm.JSLT, asm.R9, 0, asm.R1, failed)
}

// setCaptureSize sets R2 to as many of the bytes asked for as there is room
// for.
func (b *builder) setCaptureSize(c *CapturePlace) {
	if c.Length == None && !(b.lookedUp && b.isBytes(c.Arg)) {
		b.Emit(asm.Mov.Imm(asm.R2, int32(c.Max)))
		return
	}
	fits := b.Label()
	b.Emit(asm.Mov.Reg(asm.R2, asm.R9))
	b.JumpIfImm(asm.JLE, asm.R2, uint64(c.Max), asm.R1, fits)
	b.Emit(asm.Mov.Imm(asm.R2, int32(c.Max)))
	b.Place(fits)
}
