// SPDX-License-Identifier: BSD-2-Clause

//go:build amd64

package bpf_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/go-quicktest/qt"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// A window changes what BPF_USDT costs, and never what it reads.
func TestWindowIsReadAtOnce(t *testing.T) {
	collection := reader(t, true)
	tgt := startTarget(t)
	tgt.attach(t, collection, 1)

	longs := spec{Count: 12, WindowBase: page, WindowSize: 96, WindowDisplacement: 0x40}
	for i := range 12 {
		longs.Arguments[i] = inMemory(page, int64(0x40+8*i), 8, 0).at(uint8(8 * i))
	}
	mixed := spec{
		Count: 12, WindowBase: end, WindowSize: 24, WindowDisplacement: -100,
		Arguments: [12]argument{
			inMemory(end, -100, 8, 0).at(0),
			inMemory(end, -88, 4, 0).at(12),
			inMemory(end, -92, 4, signed).at(8),
			inMemory(end, -84, 2, 0).at(16),
			inMemory(end, -82, 2, signed).at(18),
			inMemory(end, -80, 1, 0).at(20),
			inMemory(end, -79, 1, signed).at(21),
			inMemory(end, -77, 1, signed).at(23),
			inMemory(page, 3, 1, 0), // not in it
			inRegister(rax, 4, signed),
			{Kind: constant, Size: 8, Value: 77},
			inMemory(end, 0, 8, 0),
		},
	}
	broken := spec{
		Count: 3, WindowBase: end, WindowSize: 24, WindowDisplacement: -16,
		Arguments: [12]argument{
			inMemory(end, -16, 8, 0).at(0), inMemory(end, -8, 8, 0).at(8), inMemory(end, 0, 8,
				0).at(16),
		},
	}
	tooLarge := longs
	tooLarge.WindowSize = 97

	for name, s := range map[string]spec{
		"longs": longs, "mixed": mixed, "not readable": broken, "too large": tooLarge,
	} {
		t.Run(name, func(t *testing.T) {
			putSpec(t, collection, 1, s)
			tgt.hit(t)
			got := readResult(t, collection)
			qt.Check(t, qt.DeepEquals(got.all[:], got.single[:12]))
			qt.Check(t, qt.Not(qt.Equals(got.all[0], 0)))
		})
	}

	// The same window put elsewhere shows that it is what is read.
	longs.WindowDisplacement = 0
	putSpec(t, collection, 1, longs)
	tgt.hit(t)
	got := readResult(t, collection)
	qt.Check(t, qt.Equals(got.all[0], 0x0706050403020100))
	qt.Check(t, qt.Equals(got.all[11], 0x5f5e5d5c5b5a5958))
	qt.Check(t, qt.Equals(got.single[0], 0x4746454443424140))
}

func TestSleepableProgramsCanWaitForPages(t *testing.T) {
	testprog.RequireBPF(t)
	testneeds.Kernel(t, "6.6", "uprobe_multi links")
	untouched := spec{
		Count: 2, WindowBase: empty, WindowSize: 16,
		Arguments: [12]argument{inMemory(empty, 0, 8, 0).at(0), inMemory(empty, 8, 8, 0).at(8)},
	}
	for _, test := range []struct {
		name  string
		flags []string
		err   int32
	}{
		{"by default they do not", nil, fault},
		{"BPF_USDT_SLEEPABLE", []string{"-DBPF_USDT_SLEEPABLE"}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			tgt := startTarget(t)
			object := mustCompile(t, compilers(t)[0], thisMachine(t), "testdata/reader.bpf.c",
				test.flags...)
			collection := load(t, object, true, func(s *ebpf.CollectionSpec) {
				for _, program := range s.Programs {
					program.AttachType = ebpf.AttachTraceUprobeMulti
				}
			})
			putSpec(t, collection, 1, untouched)
			executable, err := link.OpenExecutable(tgt.path)
			qt.Assert(t, qt.IsNil(err))
			l, err := executable.UprobeMulti(nil, collection.Programs["read_single"],
				&link.UprobeMultiOptions{
					Addresses: []uint64{tgt.offset}, Cookies: []uint64{1},
				})
			qt.Assert(t, qt.IsNil(err))
			defer l.Close()
			tgt.hit(t)
			got := readResult(t, collection)
			qt.Check(t, qt.Equals(got.errors[0], test.err))
			qt.Check(t, qt.Equals(got.single[0], 0))
			qt.Check(t, qt.Equals(got.errors[2], noSuchArgument))
		})
	}
}
