// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"debug/elf"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// Programs read the value that an argument string means, which is evaluated
// here in another way.
func FuzzReadsOfText(f *testing.F) {
	testneeds.Only(f, "the argument strings are those of x86-64", "amd64")
	for _, seed := range []string{
		"8@%rdi", "-4@%eax", "1@%ah", "2@%r9w", "-1@%sil", "8@$-1", "4@$18446744073709551615",
		"-2@$0x8000",
		"8@(%rsp)", "-4@-20(%rbp)", "4@16(%rax,%rbx,4)", "1@(%rsi,%rdi)", "8@-8(,%rcx,8)",
		"8f@(%rbx)", "-8@1(%r15,%r14,2)",
	} {
		f.Add(seed, uint64(1))
	}
	const machine = elf.EM_X86_64
	memory := newArena(f)
	memory.fill(rand.New(rand.NewPCG(16, 16)))
	runner := newCodeRunner(f, objectFor(f, machine), machine)
	read := func(to []byte, address uint64) bool {
		from, ok := readOwnMemory(address, len(to))
		copy(to, from)
		return ok
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		random := rand.New(rand.NewPCG(seed, seed))
		registers := make([]byte, contextSize)
		if _, _, _, known := testprog.ReadX86(text, registers, read); !known {
			return
		}
		args := argspec.Parse(machine, text)
		qt.Assert(t, qt.HasLen(args, 1), qt.Commentf("%q", text))
		c := *runner
		c.t = t
		c.describe(machine, 1, args)
		for range 8 {
			state := randomState(random, machine, memory, args)
			size, want, readable, _ := testprog.ReadX86(text, state.context(), read)
			if unused := 64 - 8*size; strings.HasPrefix(text, "-") {
				want = uint64(int64(want<<unused) >> unused)
			}
			code := int32(0)
			if !readable {
				want, code = 0, -int32(unix.EFAULT)
			}
			for n, event := range c.run(state.context(), 1) {
				comment := qt.Commentf("%s: %q is %v: %s", collectors[n], text, args[0], state)
				qt.Check(t, qt.Equals(uint64(event.Val[0]), want), comment)
				if n == 0 { // the one that reports how it went
					qt.Check(t, qt.Equals(event.Err[0], code), comment)
				}
			}
		}
	})
}
