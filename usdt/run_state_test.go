// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
)

// machineState is the contents of a kernel's registers.
type machineState struct {
	machine elf.Machine
	words   [48]uint64
}

func (s *machineState) size() int {
	if s.machine == elf.EM_ARM {
		return 4
	}
	return 8
}

// context returns the registers as the kernel lays them out.
func (s *machineState) context() []byte {
	context := make([]byte, contextSize)
	for i, word := range s.words {
		if s.size() == 4 {
			binary.NativeEndian.PutUint32(context[4*i:], uint32(word))
		} else {
			binary.NativeEndian.PutUint64(context[8*i:], word)
		}
	}
	return context
}

func (s *machineState) String() string {
	text := ""
	for i, word := range s.words {
		text += fmt.Sprintf(" %d:%#x", i, word)
	}
	return text
}

// value returns the value that reading an argument gives by its meaning in the
// vectors, independently of this module's parser. least is the number of bytes
// that must be mapped to read any.
func (s *machineState) value(means string, least int) (value uint64, err unix.Errno) {
	words := strings.Fields(means)
	size, _ := strconv.Atoi(words[0])
	signed, place := words[1] == "signed", words[2:]
	if words[1] == "bytes" || place[0] == "unavailable" {
		return 0, unix.EOPNOTSUPP
	}
	number := func(text string) uint64 {
		if n, err := strconv.ParseInt(text, 0, 64); err == nil {
			return uint64(n)
		}
		n, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			panic(means)
		}
		return n
	}
	register := func(text string) uint64 {
		_, slot, _ := strings.Cut(text, "@")
		if slot == "none" {
			return 0
		}
		word := s.words[number(slot)]
		if s.size() == 4 {
			word = uint64(uint32(word))
		}
		return word
	}
	if strings.Contains(means, "@none") {
		return 0, unix.EOPNOTSUPP // this kernel does not save it
	}
	after := func(name string) string {
		if i := slices.Index(place, name); i >= 0 {
			return place[i+1]
		}
		return ""
	}
	sum := func() uint64 {
		var address uint64
		if text := after("index"); text != "" {
			address = register(text)
			switch {
			case slices.Contains(place, "uxtw"):
				address = uint64(uint32(address))
			case slices.Contains(place, "sxtw"):
				address = uint64(int32(address))
			}
			if text := after("scale"); text != "" {
				address *= number(text)
			}
		}
		if text := after("base"); text != "" {
			address += register(text)
		}
		address += number(after("displacement"))
		if slices.Contains(place, "address32") {
			address = uint64(uint32(address))
		}
		return address
	}
	switch place[0] {
	case "constant":
		return number(place[1]), 0
	case "register":
		value = register(place[1])
		if text := after("shift"); text != "" {
			value >>= number(text)
		}
		if text := after("high"); text != "" {
			value = register(text)<<32 | uint64(uint32(value))
		}
	case "address":
		value = sum()
	case "memory":
		bytes, ok := readOwnMemory(sum(), size)
		if _, all := readOwnMemory(sum(), max(size, least)); !ok || !all {
			return 0, unix.EFAULT
		}
		wide := make([]byte, 8)
		if nativeOrder() == binary.BigEndian {
			copy(wide[8-size:], bytes)
		} else {
			copy(wide, bytes)
		}
		value = nativeOrder().Uint64(wide)
	default:
		panic(means)
	}
	unused := 64 - 8*size
	if signed {
		return uint64(int64(value<<unused) >> unused), 0
	}
	return value << unused >> unused, 0
}

// randomState returns random registers, some of which point to memory, as the
// arguments need.
func randomState(
	random *rand.Rand, machine elf.Machine, memory arena, args []argspec.Arg,
) *machineState {
	s := &machineState{machine: machine}
	place := func() uint64 {
		if random.IntN(8) == 0 {
			return memory.start + arenaSize - uint64(random.IntN(16)) // at its end
		}
		return memory.start + uint64(random.IntN(arenaSize))
	}
	for i := range s.words {
		switch random.IntN(4) {
		case 0:
			s.words[i] = random.Uint64()
		case 1:
			s.words[i] = uint64(random.IntN(100) - 30)
		default:
			s.words[i] = place()
		}
	}
	for _, n := range random.Perm(len(args)) {
		a := &args[n]
		if slot, ok := a.Base.Slot(machine); ok && a.Kind == argspec.Memory {
			target := place()
			if random.IntN(2) == 0 {
				target &^= 7
			}
			s.words[slot] = target - uint64(a.Displacement)
			if index, ok := a.Index.Slot(machine); ok && index != slot {
				word := randomIndex(random, a.IndexSize)
				s.words[index] = word
				switch a.IndexSize {
				case 4:
					word = uint64(uint32(word))
				case -4:
					word = uint64(int32(word))
				}
				s.words[slot] -= word * uint64(a.Scale)
			}
		}
	}
	return s
}

// randomIndex returns a small index. The bits that do not count are random.
func randomIndex(random *rand.Rand, size int8) uint64 {
	index := uint64(random.IntN(40) - 20)
	if size != 0 {
		index = random.Uint64()<<32 | uint64(uint32(index))
	}
	return index
}
