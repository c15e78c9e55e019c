// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/unwind"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/usdt"
)

// siteFrame is what the file's tables for exceptions say of a site of a pair.
type siteFrame struct {
	bpfgen.Frame
	shared uint64 // bit n: it has the function of the other end, for the nth Latency
	merged uint64 // bit n: it has the instruction of the other end
}

// frameKey names a site: several probes can be at one instruction.
type frameKey struct {
	instruction    uint64
	provider, name string
}

func frameOf(site *usdt.Site) frameKey {
	return frameKey{site.Instruction, site.Provider, site.Name}
}

// maxFramed is the greatest number of Latencies whose pairs are looked up.
const maxFramed = 64

// findFrames looks up which starts and ends of pairs are in one function, and
// how the frame of that is found. Those of other Latencies than by thread do
// not need it.
func (f *filePairs) findFrames(latencies []*latency, sel *usdt.Selection) {
	// role is the number of a pair with its Index, and whether it is an end.
	type role struct {
		latency int
		pair    uint32
		index   uint16
		isEnd   bool
	}
	roles := func(site *usdt.Site, do func(r role)) {
		ends := f.of(site.Provider, site.Name).ends
		for i, l := range latencies[:min(len(latencies), maxFramed)] {
			e, ok := ends[&l.Latency]
			// What is both is the end of one call and the start of the next.
			if !ok || e.Start != 0 && e.Start == e.Done || e.Attempt {
				continue
			}
			for pair, isEnd := range map[uint32]bool{e.Start: false, e.Done: true, e.Failed: true} {
				match := e.StartBy
				if isEnd {
					match = e.DoneBy
				}
				if pair != 0 && cmp.Or(match, &l.Match).ByThread() {
					do(role{i, pair, e.Index, isEnd})
				}
			}
		}
	}
	var table *functions
	where := make(map[role][]uint64) // in which functions there are sites
	each := func(do func(site *usdt.Site, r role, frame unwind.Frame)) {
		for _, site := range sel.Sites() {
			roles(&site, func(r role) {
				if table == nil {
					table = functionsOf(sel)
				}
				if frame, ok := table.frame(site.Instruction); ok {
					do(&site, r, frame)
				} else {
					f.unframed++
				}
			})
		}
	}
	each(func(_ *usdt.Site, r role, frame unwind.Frame) {
		if !slices.Contains(where[r], frame.Start) {
			where[r] = append(where[r], frame.Start)
		}
	})
	each(func(site *usdt.Site, r role, frame unwind.Frame) {
		other := r
		other.isEnd = !r.isEnd
		known := f.frames[frameOf(site)]
		known.Frame = bpfgen.Frame{Known: true, Register: uint8(frame.Register), Offset: int32(frame.Offset)}
		if slices.ContainsFunc(where[other], func(start uint64) bool {
			return table.same(frame.Start, start)
		}) {
			known.shared |= 1 << r.latency
		}
		f.frames[frameOf(site)] = known
	})
}

// at returns what a site is for each Latency, with its frame.
func (f *filePairs) at(site *usdt.Site, latencies []*latency) (map[*bpfgen.Latency]bpfgen.Ends, siteFrame) {
	ends, frame := f.of(site.Provider, site.Name).ends, f.frames[frameOf(site)]
	own := make(map[*bpfgen.Latency]bpfgen.Ends, len(ends))
	for i, l := range latencies {
		if e := ends[&l.Latency]; e != nil && frame.merged&(1<<i) == 0 {
			here := *e
			here.Framed = frame.shared&(1<<i) != 0
			if here.Activation.Depth > 0 {
				here.Framed = true
				here.Activation.Variable -= int64(site.Instruction)
			}
			own[&l.Latency] = here
		}
	}
	return own, frame
}

// namesOf returns which texts the start and the end of a pair share by their
// names, see [bpfgen.Ends], unless they have an activation or need none.
func (s *definition) namesOf(
	l *latency, args map[[2]string][][]argspec.Arg, pair *defs.Pair, a *bpfgen.Activation,
) (start, done [2]int) {
	definitions := s.opts.known()
	if a.Depth > 0 || l.Fails || !s.hasActivation(pair.String()) {
		return start, done
	}
	starts, ends := args[nameOf(&pair.Start)], args[nameOf(&pair.Done)]
	ofDone, n := named(definitions, &pair.Done, ends), 0
	for i, arg := range named(definitions, &pair.Start, starts) {
		j := slices.IndexFunc(ofDone, func(other defs.Argument) bool { return other.Name == arg.Name })
		if arg.IsText && j >= 0 && comparesAll(starts, i) && comparesAll(ends, j) && n < len(start) {
			start[n], done[n] = i+1, j+1
			n++
		}
	}
	return start, done
}

// hasActivation reports whether definitions say that an interpreter's frames
// tell the calls of a pair apart.
func (s *definition) hasActivation(pair string) bool {
	provider, name, _ := strings.Cut(pair, ":")
	function, _, _ := s.opts.known().Frame(provider, name, func(string) bool { return true })
	return function != ""
}

// mayBeDeep reports whether a pattern selects such a pair among the probes that
// definitions have.
func (s *definition) mayBeDeep(pattern defs.PairPattern) bool {
	var all defs.Listing
	for probe := range s.opts.known().Probes() {
		all.Probes = append(all.Probes, defs.FileProbe{Provider: probe.Provider, Name: probe.Name})
	}
	return slices.ContainsFunc(s.opts.known().NamedPairs(&all, pattern), func(pair defs.Pair) bool {
		return s.hasActivation(pair.String())
	})
}

// activationOf returns where the frames of an interpreter are, with the address
// of the variable in the file, if the definition of a pair says so and the file
// has it in that way.
func (s *Session) activationOf(l *latency, sel *usdt.Selection, pair *defs.Pair) (a bpfgen.Activation) {
	header, open := sel.File().Header(), elffile.OSFile(sel.File())
	if !l.Deep || open == nil || header.Class != elf.ELFCLASS64 || header.ByteOrder != binary.LittleEndian {
		return a
	}
	provider, name, _ := strings.Cut(pair.String(), ":")
	function, members, caller := s.opts.known().Frame(provider, name, func(symbol string) bool {
		_, err := sel.Symbols().Symbol(symbol)
		return err == nil
	})
	if function == "" {
		return a
	}
	symbol, err := sel.Symbols().Symbol(function)
	if err != nil {
		return a
	}
	file, err := elffile.New(open)
	if err != nil {
		return a
	}
	code := make([]byte, 20)
	if s := file.Segment(symbol.Value, uint64(len(code)), elf.PF_X); s != nil {
		code, err = file.ReadRange(s.Offset+symbol.Value-s.Address, uint64(len(code)))
	}
	if err != nil {
		return a
	}
	variable, member, ok := returnedPointer(header.Machine, symbol.Value, code)
	if !ok {
		return a
	}
	a = bpfgen.Activation{Variable: int64(variable), Caller: caller}
	if members = slices.Concat(member, members); len(members) <= len(a.Members) {
		a.Depth = copy(a.Members[:], members)
	}
	return a
}

// returnedPointer returns the address of the variable that a function returns,
// which does nothing else, or that of a pointer to a structure whose member it
// returns, as of a variable of a library, with the offset of the member.
func returnedPointer(machine elf.Machine, at uint64, code []byte) (variable uint64, member []int32, ok bool) {
	if variable = returned(machine, at, code); variable != 0 {
		return variable, nil, true
	}
	order := binary.LittleEndian
	switch machine {
	case elf.EM_X86_64:
		endbr := []byte{0xf3, 0x0f, 0x1e, 0xfa}
		rest := bytes.TrimPrefix(code, endbr)
		at += uint64(len(code) - len(rest))
		// MOV disp32(RIP), RAX; MOV disp32(RAX), RAX or MOV (RAX), RAX; RET
		if bytes.HasPrefix(rest, []byte{0x48, 0x8b, 0x05}) {
			variable = at + 7 + uint64(int64(int32(order.Uint32(rest[3:]))))
			switch load := rest[7:]; {
			case bytes.HasPrefix(load, []byte{0x48, 0x8b, 0x80}) && load[7] == 0xc3:
				return variable, []int32{int32(order.Uint32(load[3:]))}, true
			case bytes.HasPrefix(load, []byte{0x48, 0x8b, 0x00, 0xc3}):
				return variable, []int32{0}, true
			}
		}
	case elf.EM_AARCH64:
		// ADRP X0; LDR X0, [X0, #n]; LDR X0, [X0, #m]; RET
		if load := order.Uint32(code[8:]); load&0xffc003ff == 0xf9400000 {
			without := slices.Concat(code[:8], code[12:])
			variable = returned(machine, at, without)
			return variable, []int32{int32(load >> 10 & 0xfff * 8)}, variable != 0
		}
	}
	return 0, nil, false
}

// functions finds the functions of a file by its tables for exceptions.
type functions struct {
	file  *elffile.File
	table *unwind.Table // nil if there is none
	known map[uint64]unwind.Frame
	parts map[[2]uint64]bool // by two starts: whether one jumps to the other
}

func functionsOf(sel *usdt.Selection) *functions {
	f := &functions{known: make(map[uint64]unwind.Frame), parts: make(map[[2]uint64]bool)}
	open := elffile.OSFile(sel.File())
	if open == nil {
		return f
	}
	var err error
	if f.file, err = elffile.New(open); err == nil {
		f.table, _ = unwind.Read(f.file) // nil also if they are malformed
	}
	return f
}

// frame returns the frame at an instruction, and remembers its function.
func (f *functions) frame(instruction uint64) (unwind.Frame, bool) {
	if f.table == nil {
		return unwind.Frame{}, false
	}
	frame, err := f.table.Frame(instruction)
	if err != nil || frame.Offset != int64(int32(frame.Offset)) {
		return frame, false
	}
	f.known[frame.Start] = frame
	return frame, true
}

// same reports whether two pieces of code, by their starts, are one function:
// compilers put what is seldom executed into a part elsewhere, to which and
// from which the rest jumps.
func (f *functions) same(a, b uint64) bool {
	if a == b {
		return true
	}
	if !f.known[a].IsPart && !f.known[b].IsPart {
		return false // a jump from one to the other is a call at its end
	}
	key := [2]uint64{min(a, b), max(a, b)}
	same, ok := f.parts[key]
	if !ok {
		same = f.jumps(f.known[a], f.known[b]) || f.jumps(f.known[b], f.known[a])
		f.parts[key] = same
	}
	return same
}

const maxCode = 1 << 20

// jumps reports whether some bytes of a function are a jump into the code of
// another one.
func (f *functions) jumps(from, to unwind.Frame) bool {
	s := f.file.Segment(from.Start, from.Size, elf.PF_X)
	if s == nil || from.Size > maxCode {
		return false
	}
	code, err := f.file.ReadRange(s.Offset+from.Start-s.Address, from.Size)
	if err != nil {
		return false
	}
	order := binary.LittleEndian
	for at := range code {
		var distance int64
		here := from.Start + uint64(at)
		switch rest := code[at:]; {
		case f.file.Machine == elf.EM_X86_64 && len(rest) >= 5 && rest[0] == 0xe9: // JMP rel32
			distance = 5 + int64(int32(order.Uint32(rest[1:])))
		case f.file.Machine == elf.EM_X86_64 && len(rest) >= 6 && rest[0] == 0x0f && rest[1]>>4 == 8: // Jcc rel32
			distance = 6 + int64(int32(order.Uint32(rest[2:])))
		case f.file.Machine == elf.EM_AARCH64 && at%4 == 0 && len(rest) >= 4:
			switch i := order.Uint32(rest); {
			case i>>26 == 0b000101: // B
				distance = int64(int32(i<<6)>>6) * 4
			case i>>24 == 0b01010100, i>>25&0b111111 == 0b011010: // B.cond, CBZ and CBNZ
				distance = int64(int32(i<<8)>>13) * 4
			}
		}
		if target := here + uint64(distance); distance != 0 && target-to.Start < to.Size {
			return true
		}
	}
	return false
}
