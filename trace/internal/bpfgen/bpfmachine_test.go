// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// bpfMachine interprets generated programs, so that they can be tested for
// every machine's registers and both byte orders on any host. It knows the
// instructions and helpers that are generated, and fails for what a kernel
// would not accept of memory.
type bpfMachine struct {
	order   binary.ByteOrder
	context []byte            // struct pt_regs
	memory  map[uint64][]byte // of the traced process: ranges by their first address
	cold    map[uint64]bool   // pages that are not there until something sleeps for them
	maps    map[int]*bpfMap   // by descriptor

	pid, tid, uid, gid, cpu uint32
	cgroup                  uint64
	foreign                 bool // in a PID namespace that is neither the initial nor the test's
	command                 string
	now, cookie             uint64
	born                    uint64 // when the thread began
	full                    bool   // the ring buffer has no room
	oldText                 bool   // the kernel does not count the end of an empty text

	records [][]byte
	reads   int // calls that read the traced process's memory
	failed  int // those that could not
	stackID int64
	stored  func() // is called after each store

	registers [11]uint64
	stack     [argcode.StackSize]byte
	record    []byte
}

// bpfMap is a map, by the bytes of its keys.
type bpfMap struct {
	values             map[string][]byte
	keySize, valueSize int
	array              bool // each key is there
	all                bool // of an array, each key comes to be there when it is asked for
	max                int
	inner              int // descriptor of the map that is each value of an array of maps
}

func (m *bpfMachine) addMap(fd int, array bool, keySize, valueSize, max int) *bpfMap {
	mp := &bpfMap{values: make(map[string][]byte), keySize: keySize, valueSize: valueSize,
		array: array, max: max}
	for i := range max {
		if array {
			key := make([]byte, 4)
			m.order.PutUint32(key, uint32(i))
			mp.values[string(key)] = make([]byte, valueSize)
		}
	}
	m.maps[fd] = mp
	return mp
}

// Where the parts of memory begin that a program can point to.
const (
	contextBase = 0x1000_0000_0000
	stackBase   = 0x2000_0000_0000 // of its end
	recordBase  = 0x3000_0000_0000
	taskBase    = 0x3800_0000_0000
	valueBase   = 0x4000_0000_0000
)

func newBPFMachine(order binary.ByteOrder) *bpfMachine {
	return &bpfMachine{
		order: order, context: make([]byte, 512), memory: make(map[uint64][]byte),
		maps:    make(map[int]*bpfMap),
		pid:     100,
		tid:     101,
		uid:     7,
		gid:     8,
		cpu:     3,
		cgroup:  1<<40 + 9,
		command: "worker",
		now:     1000,
	}
}

// run runs a program to its end.
func (m *bpfMachine) run(program asm.Instructions) error {
	// Offsets count in 8 bytes.
	var raw []int
	for i := range program {
		raw = append(raw, i)
		if program[i].Size() == 2*asm.InstructionSize {
			raw = append(raw, -1)
		}
	}
	at := make([]int, len(program))
	for n, i := range raw {
		if i >= 0 {
			at[i] = n
		}
	}

	for i := range m.stack {
		m.stack[i] = 0xa5 // nothing may rely on it
	}
	m.registers = [11]uint64{1: contextBase, 10: stackBase}
	var values [][]byte // that a look-up has returned
	for pc := 0; ; {
		ins := program[raw[pc]]
		next := pc + int(ins.Size()/asm.InstructionSize)
		switch class := ins.OpCode.Class(); class {
		case asm.ALUClass, asm.ALU64Class:
			m.alu(&ins)
		case asm.LdClass:
			m.registers[ins.Dst] = uint64(ins.Constant)
		case asm.LdXClass:
			b, err := m.at(m.registers[ins.Src]+uint64(int64(ins.Offset)),
				ins.OpCode.Size().Sizeof(), values, true)
			if err != nil {
				return fmt.Errorf("%d: %v: %w", pc, ins, err)
			}
			m.registers[ins.Dst] = m.load(b)
		case asm.StClass, asm.StXClass:
			b, err := m.at(m.registers[ins.Dst]+uint64(int64(ins.Offset)),
				ins.OpCode.Size().Sizeof(), values, true)
			if err != nil {
				return fmt.Errorf("%d: %v: %w", pc, ins, err)
			}
			m.storeInstruction(&ins, b)
			if m.stored != nil {
				m.stored()
			}
		case asm.JumpClass, asm.Jump32Class:
			switch op := ins.OpCode.JumpOp(); op {
			case asm.Exit:
				return nil
			case asm.Call:
				var err error
				if values, err = m.call(asm.BuiltinFunc(ins.Constant), values); err != nil {
					return fmt.Errorf("%d: %v: %w", pc, ins, err)
				}
			default:
				if m.taken(&ins) {
					next += int(ins.Offset)
				}
			}
		}
		pc = next
	}
}

func (m *bpfMachine) alu(ins *asm.Instruction) {
	src := uint64(ins.Constant)
	if ins.OpCode.Source() == asm.RegSource {
		src = m.registers[ins.Src]
	}
	dst := m.registers[ins.Dst]
	if ins.OpCode.Class() == asm.ALUClass {
		src, dst = uint64(uint32(src)), uint64(uint32(dst))
	}
	switch ins.OpCode.ALUOp() {
	case asm.Mov:
		dst = src
	case asm.Add:
		dst += src
	case asm.Sub:
		dst -= src
	case asm.Mul:
		dst *= src
	case asm.And:
		dst &= src
	case asm.Or:
		dst |= src
	case asm.Xor:
		dst ^= src
	case asm.LSh:
		dst <<= src & 63
	case asm.RSh:
		dst >>= src & 63
	case asm.ArSh:
		dst = uint64(int64(dst) >> (src & 63))
	case asm.Neg:
		dst = -dst
	case asm.Div:
		if src == 0 {
			dst = 0
		} else {
			dst /= src
		}
	default:
		panic(fmt.Sprintf("no such operation: %v", ins))
	}
	if ins.OpCode.Class() == asm.ALUClass {
		dst = uint64(uint32(dst))
	}
	m.registers[ins.Dst] = dst
}

func (m *bpfMachine) taken(ins *asm.Instruction) bool {
	dst, src := m.registers[ins.Dst], uint64(ins.Constant)
	if ins.OpCode.Source() == asm.RegSource {
		src = m.registers[ins.Src]
	}
	switch ins.OpCode.JumpOp() {
	case asm.Ja:
		return true
	case asm.JEq:
		return dst == src
	case asm.JNE:
		return dst != src
	case asm.JGT:
		return dst > src
	case asm.JGE:
		return dst >= src
	case asm.JLT:
		return dst < src
	case asm.JLE:
		return dst <= src
	case asm.JSGT:
		return int64(dst) > int64(src)
	case asm.JSGE:
		return int64(dst) >= int64(src)
	case asm.JSLT:
		return int64(dst) < int64(src)
	case asm.JSLE:
		return int64(dst) <= int64(src)
	default:
		panic(fmt.Sprintf("no such jump: %v", ins))
	}
}

func (m *bpfMachine) load(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(m.order.Uint16(b))
	case 4:
		return uint64(m.order.Uint32(b))
	default:
		return m.order.Uint64(b)
	}
}

func (m *bpfMachine) store(b []byte, value uint64) {
	switch len(b) {
	case 1:
		b[0] = byte(value)
	case 2:
		m.order.PutUint16(b, uint16(value))
	case 4:
		m.order.PutUint32(b, uint32(value))
	default:
		m.order.PutUint64(b, value)
	}
}

func (m *bpfMachine) storeInstruction(ins *asm.Instruction, b []byte) {
	switch {
	case ins.OpCode.Class() == asm.StClass:
		m.store(b, uint64(ins.Constant))
	case ins.OpCode.Mode() != asm.AtomicMode:
		m.store(b, m.registers[ins.Src])
	case ins.OpCode.AtomicOp() == asm.AddAtomic:
		m.store(b, m.load(b)+m.registers[ins.Src])
	case ins.OpCode.AtomicOp() == asm.CmpXchg && ins.Constant == argcode.CompareExchangeCode:
		old := m.load(b)
		if old == m.registers[0] {
			m.store(b, m.registers[ins.Src])
		}
		m.registers[0] = old
	default:
		panic(fmt.Sprintf("no such store: %v", ins))
	}
}

// at returns the memory at an address. Loads and stores must be aligned; what
// helpers do need not be.
func (m *bpfMachine) at(address uint64, size int, values [][]byte, aligned bool) ([]byte, error) {
	if aligned && address%uint64(size) != 0 {
		return nil, fmt.Errorf("%d bytes at %#x are not aligned", size, address)
	}
	var part []byte
	var base uint64
	switch {
	case address >= valueBase:
		n := (address - valueBase) >> 16
		if n >= uint64(len(values)) {
			return nil, fmt.Errorf("no memory at %#x", address)
		}
		part, base = values[n], valueBase+n<<16
	case address >= recordBase:
		part, base = m.record, recordBase
	case address >= contextBase && address < contextBase+uint64(len(m.context)):
		part, base = m.context, contextBase
	default:
		part, base = m.stack[:], stackBase-argcode.StackSize
	}
	if address < base || address-base+uint64(size) > uint64(len(part)) {
		return nil, fmt.Errorf("%d bytes at %#x are out of bounds", size, address)
	}
	return part[address-base:][:size], nil
}

// user copies memory of the traced process, all or none.
func (m *bpfMachine) user(to []byte, address uint64) bool {
	for page := range m.cold {
		if page >= address/leastPage && page <= (address+uint64(len(to))-1)/leastPage {
			clear(to)
			return false
		}
	}
	for from, part := range m.memory {
		if address >= from && address-from+uint64(len(to)) <= uint64(len(part)) &&
			address-from <= uint64(len(part)) {
			copy(to, part[address-from:])
			return true
		}
	}
	clear(to)
	return false
}

const (
	minusEFAULT = ^uint64(14 - 1)
	minusEINVAL = ^uint64(22 - 1)
)
