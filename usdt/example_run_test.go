// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"log"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// The types that bpf2go generates have these names in the examples.
type (
	tracerObjects struct {
		Count *ebpf.Program `ebpf:"count"`
		Hits  *ebpf.Map     `ebpf:"hits"`
	}
	tracerHit = testbpf.CountsHit
)

func loadTracer() (*ebpf.CollectionSpec, error) { return testbpf.LoadCounts() }

func (o *tracerObjects) Close() {
	o.Count.Close()
	o.Hits.Close()
}

// loadExample is the beginning of the package's example.
func loadExample() (*usdt.Manager, *tracerObjects) {
	spec, err := loadTracer()
	if err != nil {
		log.Fatal(err)
	}
	mgr, err := usdt.NewManager(spec, nil)
	if err != nil {
		log.Fatal(err)
	}
	objs := &tracerObjects{}
	if err := mgr.LoadAndAssign(objs, nil); err != nil {
		log.Fatal(err)
	}
	return mgr, objs
}

// The examples do what they say, with a C++ program that throws.
func TestExamples(t *testing.T) {
	testprog.RequireBPF(t)
	testneeds.NoGuest(t, "it has no /etc/ld.so.cache, by which a library is found by its name")
	testneeds.Kernel(t, "5.15", "BPF cookies on uprobes, to attach a library for every process")
	throw := testprog.StartThrow(t)
	for _, tc := range []struct {
		name    string
		example func()
		during  string // a line that is printed while the example runs, "" to wait for none
		meet    func() // what happens then
		want    string
	}{
		{"package", Example, "attached to ", func() { throw.Do("throw") }, "exceptions\n"},
		{"Manager.Attach", ExampleManager_Attach, "", nil,
			"libstdcxx:rethrow is attached with cookie 3\n"},
		{"Select", ExampleSelect, "", nil, "libstdcxx:throw can be attached at 0x"},
		{"Mode_Resolve", ExampleMode_Resolve, "", nil, "programs are attached in the mode "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			printed := testprog.Printed(t, tc.example, tc.during, tc.meet)
			qt.Check(t, qt.StringContains(printed, tc.want))
		})
	}
}
