// SPDX-License-Identifier: BSD-2-Clause

package unwind

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testneeds"
)

// framesSource prints at several places, whose addresses are symbols, the stack
// and the frame pointer, and the canonical frame address as the compiler knows
// it.
const framesSource = `
#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#define REGISTERS "mov %%rsp, %0\n\tmov %%rbp, %1"
#else
#define REGISTERS "mov %0, sp\n\tmov %1, x29"
#endif
#define SITE(name) do {                                                        \
	unsigned long sp, fp;                                                  \
	asm volatile(".globl site_" #name "\nsite_" #name ":\n\t" REGISTERS    \
		     : "=r"(sp), "=r"(fp) : : "memory");                       \
	printf("%s %lu %lu %lu\n", #name, sp, fp,                              \
	       (unsigned long)__builtin_dwarf_cfa());                          \
} while (0)
#define ONCE __attribute__((noinline))

volatile int zero, large = 1000;
void *volatile kept;

ONCE void plain(int n) { SITE(plain_a); if (n > 1) plain(n - 1); SITE(plain_b); kept = &n; }

ONCE void moving(int n)
{
	SITE(moving_a);
	kept = memset(alloca(n), 1, n);
	SITE(moving_b);
	char array[2 * n];
	kept = memset(array, 1, 2 * n);
	SITE(moving_c);
}

ONCE void many(int a, int b, int c, int d, int e, int f, int g, int h, int i)
{
	SITE(many_a);
	if (a)
		many(0, i, h, g, f, e, d, c, b);
	SITE(many_b);
}

ONCE void aligned(int n)
{
	char array[100] __attribute__((aligned(128)));
	SITE(aligned_a);
	kept = memset(array, n, sizeof(array));
	SITE(aligned_b);
}

__attribute__((cold, noinline)) void rare(int n) { kept = &n; }

ONCE void seldom(int n)
{
	SITE(seldom_a);
	kept = &n;
	if (__builtin_expect(n == 1000, 0)) {
		rare(n);
		SITE(seldom_b);
		rare(n + 1);
	}
}

int main(void)
{
	plain(3);
	moving(large);
	many(1, 2, 3, 4, 5, 6, 7, 8, large);
	aligned(7);
	seldom(large);
	return zero;
}
`

// The frame follows from the registers at each place as the tables say, and is
// what the compiler says: one address for an invocation.
func TestFrames(t *testing.T) {
	optimised := []string{"-O0", "-O1", "-O2", "-O3", "-O2 -fno-omit-frame-pointer"}
	compilers := [][]string{{"gcc"}, {"clang"}}
	if runtime.GOARCH == "amd64" {
		compilers = append(compilers, []string{"aarch64-linux-gnu-gcc", "-static"})
	}
	parts := 0
	for _, compiler := range compilers {
		for _, flags := range optimised {
			t.Run(compiler[0]+" "+flags, func(t *testing.T) {
				testneeds.Only(t, "the programs are ELF files", "linux")
				testneeds.Tool(t, compiler[0], compiler[0])
				path := filepath.Join(t.TempDir(), "frames")
				args := append(append(slices.Clone(compiler[1:]), strings.Fields(flags)...),
					"-w", "-fasynchronous-unwind-tables", "-x", "c", "-", "-o", path)
				cmd := exec.Command(compiler[0], args...)
				cmd.Stdin = strings.NewReader(framesSource)
				out, err := cmd.CombinedOutput()
				qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
				cmd = exec.Command(path)
				if len(compiler) > 1 {
					cmd = exec.Command(testneeds.Tool(t, "qemu-aarch64", "qemu-user"), path)
				}
				out, err = cmd.Output()
				qt.Assert(t, qt.IsNil(err))
				parts += checkFrames(t, path, string(out))
			})
		}
	}
	if runtime.GOOS == "linux" {
		qt.Check(t, qt.IsTrue(parts > 0)) // some compiler puts what is seldom executed elsewhere
	}
}

// checkFrames compares what a program prints with its tables. It returns how
// many places are in parts of functions.
func checkFrames(t *testing.T, path, printed string) (parts int) {
	file, err := elffile.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	table, err := Read(file)
	qt.Assert(t, qt.IsNil(err))
	saved := make(map[string]uint64) // of functions whose frames are saved
	for line := range strings.Lines(printed) {
		var name string
		var sp, fp, cfa uint64
		_, err := fmt.Sscan(line, &name, &sp, &fp, &cfa)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", line))
		symbol, err := file.Symbol("site_" + name)
		qt.Assert(t, qt.IsNil(err))
		f, err := table.Frame(symbol.Value)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", name))
		if f.IsPart {
			parts++
		}
		frame := sp
		switch f.Register {
		case table.framePointer:
			frame = fp
		case table.stackPointer:
		default:
			t.Fatalf("%s: the frame is in register %d", name, f.Register)
		}
		frame += uint64(f.Offset)
		if f.Saved {
			function, _, _ := strings.Cut(name, "_")
			if before, ok := saved[function]; ok {
				qt.Check(t, qt.Equals(frame, before), qt.Commentf("%s", name))
			}
			saved[function] = frame
			continue
		}
		qt.Check(t, qt.Equals(frame, cfa), qt.Commentf("%s: %+v", name, f))
	}
	return parts
}

// A file without tables, and code without an entry, have no frames.
func TestFramesThatAreNotKnown(t *testing.T) {
	table := tableOf(framesOf("zR", "\x00", initial, ""))
	f, err := table.Frame(codeAddress + 1)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(f, Frame{Register: 7, Offset: 8, Start: codeAddress, Size: codeSize}))
	_, err = table.Frame(codeAddress + codeSize)
	qt.Check(t, qt.ErrorIs(err, ErrNoEntry))
	// An expression other than the usual one: rsp, 8, plus.
	table = tableOf(framesOf("zR", "\x00", initial, "\x0f\x04\x77\x00\x38\x22"))
	_, err = table.Frame(codeAddress)
	qt.Check(t, qt.ErrorIs(err, ErrNoEntry))
	// rbp-8, and what is there.
	table = tableOf(framesOf("zR", "\x00", initial, "\x41\x0f\x03\x76\x78\x06"))
	f, err = table.Frame(codeAddress + 1)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(f, Frame{Register: 6, Offset: -8, Saved: true, Start: codeAddress,
		Size: codeSize}))
}
