// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"debug/elf"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
	"github.com/gousdt/gousdt/usdt/libbpf"
)

// A vectorArg is one argument of testdata/vectors.
type vectorArg struct {
	place   string
	program elf.Machine
	arg     argspec.Arg
	means   string // what the vectors say it means
}

// vectorArgs returns the arguments of all vectors for kernels of this byte
// order, by the kernel's machine.
func vectorArgs(t testing.TB) map[elf.Machine][]vectorArg {
	t.Helper()
	vectors, err := testprog.LoadVectors("../testdata/vectors")
	qt.Assert(t, qt.IsNil(err))
	all := make(map[elf.Machine][]vectorArg)
	for _, v := range vectors {
		isBig := v.File.Header().ByteOrder == binary.BigEndian || v.Kernel == elf.EM_S390
		if isBig != (nativeOrder() == binary.BigEndian) || v.Expected == "none" ||
			v.Kernel == elf.EM_NONE {
			continue
		}
		args := argspec.Decode(nil, v.File, v.Location, v.Text)
		if v.NoSymbols {
			args = argspec.Parse(v.File.Header().Machine, v.Text)
		}
		means := strings.Split(v.Expected, " ; ")
		qt.Assert(t, qt.HasLen(args, len(means)), qt.Commentf("%s", v.Place))
		for i, arg := range args {
			all[v.Kernel] = append(all[v.Kernel],
				vectorArg{v.Place, v.File.Header().Machine, arg, means[i]})
		}
	}
	return all
}

// wantOf returns the events that programs should report for these arguments,
// given those that they reported.
func (c *codeRunner) wantOf(
	s *machineState, id uint32, means []string, got [3]testbpf.ArgsEvent,
) (want [3]testbpf.ArgsEvent) {
	least := 1
	if c.layout.IsLibbpf {
		least = 8 // libbpf's header reads as many in any case
	}
	for program := range want {
		w := &want[program]
		*w = got[program] // the process, the instruction pointer and sizes
		w.Cookie, w.ArgCnt = uint64(id)<<32, int32(min(len(means), sitespec.MaxArgs))
		for n := range w.Val {
			w.Val[n], w.Err[n] = 0, 0
			if program == 0 {
				w.Err[n] = -int32(unix.ENOENT)
			}
			if n >= len(means) || n >= []int{12, 3, 12}[program] {
				continue
			}
			value, err := s.value(means[n], least)
			w.Val[n] = int64(value)
			if err == unix.EOPNOTSUPP && c.layout.IsLibbpf {
				err = unix.EINVAL
			}
			if program == 0 {
				w.Err[n] = -int32(err)
			}
		}
	}
	return want
}

// Programs read the value that testdata/vectors gives for an argument, with any
// registers.
func TestProgramsReadWhatTheVectorsSay(t *testing.T) {
	testprog.RequireBPF(t)
	kernel, err := sys.KernelMachine()
	qt.Assert(t, qt.IsNil(err))
	all := vectorArgs(t)
	for machine, args := range all {
		if machine == elf.EM_MIPS {
			continue // the header has no registers of it
		}
		t.Run(machine.String(), func(t *testing.T) {
			newCodeRunner(t, objectFor(t, machine), machine).compareVectors(args)
		})
	}
	for _, header := range []string{"libbpf-installed", "libbpf-newest"} {
		t.Run(header, func(t *testing.T) {
			spec, err := libbpf.LoadCollectionSpec(testprog.Path(t, header+"/values.bpf.o"))
			qt.Assert(t, qt.IsNil(err))
			if spec.Maps[usdt.SpecMapName].ValueSize != sitespec.Size {
				testneeds.Kernel(t, "6.12",
					"a verifier that follows libbpf's newest reader through twelve arguments")
			}
			newCodeRunner(t, spec, kernel).compareVectors(all[kernel])
		})
	}
}

// compareVectors compares what programs read of these arguments.
func (c *codeRunner) compareVectors(args []vectorArg) {
	c.t.Helper()
	memory := newArena(c.t)
	random := rand.New(rand.NewPCG(14, uint64(c.machine)))
	memory.fill(random)
	// A spec is of one file.
	byProgram := make(map[elf.Machine][]vectorArg)
	for _, arg := range args {
		byProgram[arg.program] = append(byProgram[arg.program], arg)
	}
	read := 0
	for _, program := range slices.Sorted(maps.Keys(byProgram)) {
		for chunk := range slices.Chunk(byProgram[program], sitespec.MaxArgs) {
			read += c.compareSite(memory, random, chunk)
		}
	}
	c.t.Logf("%d arguments, of which %d times memory was read", len(args), read)
	qt.Check(c.t, qt.IsTrue(read > len(args)/4), qt.Commentf("%d of %d arguments", read, len(args)))
}

// compareSite compares what programs read of a site, and returns how often that
// was mapped memory.
func (c *codeRunner) compareSite(memory arena, random *rand.Rand, site []vectorArg) (read int) {
	c.t.Helper()
	const id = 1
	var args []argspec.Arg
	for _, arg := range site {
		args = append(args, arg.arg)
	}
	c.describe(site[0].program, id, args)
	var means []string
	for n := range site {
		if args[n].Kind == argspec.Unavailable {
			site[n].means = "0 unsigned unavailable"
		}
		means = append(means, site[n].means)
	}
	for range 8 {
		state := randomState(random, c.machine, memory, args)
		for _, text := range means {
			if _, err := state.value(text, 1); err == 0 && strings.Contains(text, " memory ") {
				read++
			}
		}
		context := state.context()
		got := c.run(context, id)
		want := c.wantOf(state, id, means, got)
		// A program cannot read a page that the kernel has marked as long
		// unused, if the processor does not remove the mark (arm64 without
		// FEAT_HAFDBS).
		for try := 0; try < 3 && got != want; try++ {
			memory.touch()
			got = c.run(context, id)
			want = c.wantOf(state, id, means, got)
		}
		for program := range got {
			for n, arg := range site {
				w, g := &want[program], &got[program]
				if g.Val[n] != w.Val[n] || g.Err[n] != w.Err[n] {
					c.t.Errorf("%s: %q, %s: argument %d is %#x, error %d, not %#x, error %d: %s",
						arg.place, arg.means, collectors[program], n, g.Val[n], g.Err[n], w.Val[n],
						w.Err[n], state)
				}
			}
			qt.Check(c.t, qt.Equals(got[program], want[program]), qt.Commentf("%s", site[0].place))
		}
		if c.t.Failed() {
			c.t.FailNow()
		}
	}
	return read
}
