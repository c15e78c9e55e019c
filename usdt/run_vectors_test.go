// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt

import (
	"debug/elf"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/specialise"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
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
	s *machineState, id uint32, means []string, got [3]testbpf.ArgsEvent, specialised bool,
) (want [3]testbpf.ArgsEvent) {
	least := 1
	if c.general.Libbpf && !specialised {
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
			if err == unix.EOPNOTSUPP && c.general.Libbpf {
				err = unix.EINVAL
			}
			if program == 0 {
				w.Err[n] = -int32(err)
			}
		}
	}
	return want
}

// Programs that look an argument up, and programs that are made for it, read
// the value that testdata/vectors gives for it, with any registers.
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
			spec, err := LoadCollectionSpec(testprog.Path(t, header+"/values.bpf.o"))
			qt.Assert(t, qt.IsNil(err))
			if spec.Maps[specMapName].ValueSize != sitespec.Size {
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
	random := rand.New(rand.NewPCG(14, uint64(c.general.Machine)))
	memory.fill(random)
	// A spec is of one file.
	byProgram := make(map[elf.Machine][]vectorArg)
	for _, arg := range args {
		byProgram[arg.program] = append(byProgram[arg.program], arg)
	}
	var chunks [][]vectorArg
	for _, program := range slices.Sorted(maps.Keys(byProgram)) {
		chunks = slices.AppendSeq(chunks, slices.Chunk(byProgram[program], sitespec.MaxArgs))
	}
	read := 0
	several := specialise.MaxSpecs
	if c.general.Libbpf {
		// Old verifiers would give up: they check each of twelve calls with
		// each spec.
		several = 1
		if testneeds.KernelAtLeast(c.t, "6.12") {
			several = 2
		}
	}
	for group := range slices.Chunk(chunks, several) {
		read += c.compareGroup(memory, random, group)
	}
	c.t.Logf("%d arguments, of which %d times memory was read", len(args), read)
	qt.Check(c.t, qt.IsTrue(read > len(args)/4), qt.Commentf("%d of %d arguments", read, len(args)))
}

// compareGroup compares what programs read of several sites, and returns how
// often that was mapped memory.
func (c *codeRunner) compareGroup(
	memory arena, random *rand.Rand, chunks [][]vectorArg,
) (read int) {
	c.t.Helper()
	var specs []specialise.Spec
	for i, chunk := range chunks {
		spec := specialise.Spec{ID: uint32(1 + i)}
		for _, arg := range chunk {
			spec.Args = append(spec.Args, arg.arg)
		}
		c.describe(chunk[0].program, []specialise.Spec{spec})
		specs = append(specs, spec)
	}
	several := c.specialised(specs, false)
	defer several.Close()
	forOne := random.IntN(len(chunks))
	for i, chunk := range chunks {
		spec := specs[i]
		programs := map[string]*ebpf.Collection{"looked up": c.generic,
			"made for several sites": several}
		// Loading programs takes an emulated machine seconds. There the others
		// are made for one of the specs.
		if !testneeds.IsGuest() || i == forOne {
			alone := c.specialised([]specialise.Spec{spec}, false)
			defer alone.Close()
			merged := c.specialised([]specialise.Spec{spec}, true)
			defer merged.Close()
			programs["made for one site"], programs["made for one site, reading together"] = alone,
				merged
		}
		var means []string
		for n := range chunk {
			if spec.Args[n].Kind == argspec.Unavailable {
				chunk[n].means = "0 unsigned unavailable"
			}
			means = append(means, chunk[n].means)
		}
		for range 8 {
			state := randomState(random, c.general.Machine, memory, spec.Args)
			for _, text := range means {
				if _, err := state.value(text, 1); err == 0 && strings.Contains(text, " memory ") {
					read++
				}
			}
			context := state.context()
			for name, loaded := range programs {
				got := c.run(loaded, context, spec.ID)
				want := c.wantOf(state, spec.ID, means, got, loaded != c.generic)
				// A program cannot read a page that the kernel has marked as
				// long unused, if the processor does not remove the mark (arm64
				// without FEAT_HAFDBS).
				for try := 0; try < 3 && got != want; try++ {
					memory.touch()
					got = c.run(loaded, context, spec.ID)
					want = c.wantOf(state, spec.ID, means, got, loaded != c.generic)
				}
				for program := range got {
					for n, arg := range chunk {
						w, g := &want[program], &got[program]
						if g.Val[n] != w.Val[n] || g.Err[n] != w.Err[n] {
							c.t.Errorf("%s: %q, %s: %s: argument %d is %#x, error %d, not %#x, error %d: %s", arg.place, arg.means, name,
								collectors[program], n, g.Val[n], g.Err[n], w.Val[n],
								w.Err[n], state)
						}
					}
					qt.Check(c.t, qt.Equals(got[program], want[program]),
						qt.Commentf("%s: %s", name, chunk[0].place))
				}
			}
			if c.t.Failed() {
				c.t.FailNow()
			}
		}
	}
	return read
}

// fuzzed returns the number of specs for a fuzzed program, mostly a small one.
func fuzzed(random *rand.Rand) int { return 1 + random.IntN(1+random.IntN(specialise.MaxSpecs)) }

// Programs made for random specs read with random registers what those that
// look them up do.
func FuzzSpecialisedReads(f *testing.F) {
	testprog.RequireBPF(f)
	kernel, err := sys.KernelMachine()
	qt.Assert(f, qt.IsNil(err))
	runner, memory := newCodeRunner(f, objectFor(f, kernel), kernel), newArena(f)
	memory.fill(rand.New(rand.NewPCG(15, 15)))
	var known []argspec.Arg
	for _, arg := range vectorArgs(f)[kernel] {
		if arg.program == kernel {
			known = append(known, arg.arg)
		}
	}
	for seed := range uint64(8) {
		f.Add(seed, int64(0))
	}
	f.Fuzz(func(t *testing.T, seed uint64, displacement int64) {
		random := rand.New(rand.NewPCG(seed, 0))
		specs := make([]specialise.Spec, fuzzed(random))
		for i := range specs {
			specs[i].ID = uint32(1 + i)
			for range random.IntN(14) {
				specs[i].Args = append(specs[i].Args,
					changed(random, known[random.IntN(len(known))], displacement))
			}
		}
		c := *runner
		c.t = t
		c.describe(kernel, specs)
		special := c.specialised(specs, random.IntN(2) == 0)
		defer special.Close()
		for _, spec := range specs {
			for range 4 {
				state := randomState(random, kernel, memory, spec.Args)
				want := c.run(c.generic, state.context(), spec.ID)
				got := c.run(special, state.context(), spec.ID)
				qt.Assert(t, qt.Equals(got, want), qt.Commentf("%v: %s", spec.Args, state))
			}
		}
	})
}

// changed returns an argument like another one.
func changed(random *rand.Rand, arg argspec.Arg, displacement int64) argspec.Arg {
	if arg.Kind != argspec.Memory && arg.Kind != argspec.Address {
		return arg
	}
	if random.IntN(2) == 0 {
		arg.Size = 1 << random.IntN(4)
	}
	arg.Signed = random.IntN(2) == 0
	switch random.IntN(4) {
	case 0:
		arg.Displacement = displacement + int64(random.IntN(64))
	case 1:
		arg.Displacement = int64(random.IntN(20)) * 8 // a neighbour of others
	}
	return arg
}
