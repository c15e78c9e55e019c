// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package watch_test

import (
	"log"
	"os"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// The type that bpf2go generates has this name in the examples.
type tracerObjects struct {
	Count *ebpf.Program `ebpf:"count"`
	Hits  *ebpf.Map     `ebpf:"hits"`
}

func (o *tracerObjects) Close() {
	o.Count.Close()
	o.Hits.Close()
}

// loadExample is the beginning of the example of package usdt.
func loadExample() (*usdt.Manager, *tracerObjects) {
	spec, err := testbpf.LoadCounts()
	if err != nil {
		log.Fatal(err)
	}
	mgr, err := usdt.NewManager(spec, nil)
	if err != nil {
		log.Fatal(err)
	}
	objs := &tracerObjects{}
	if err := spec.LoadAndAssign(objs, mgr.CollectionOptions()); err != nil {
		log.Fatal(err)
	}
	return mgr, objs
}

// The examples do what they say, with a C++ program that throws.
func TestExamples(t *testing.T) {
	testprog.RequireBPF(t)
	testneeds.NoGuest(t, "it has no /etc/ld.so.cache, by which a library is found by its name")
	testprog.StartThrow(t)
	printed := testprog.Printed(t, ExampleNew, "attached to ", func() {
		qt.Check(t, qt.IsNil(syscall.Kill(os.Getpid(), syscall.SIGINT)))
	})
	qt.Check(t, qt.StringContains(printed, "detached from"))
	testprog.Printed(t, ExampleProgram, "", nil)
}
