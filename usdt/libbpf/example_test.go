// SPDX-License-Identifier: BSD-2-Clause

package libbpf_test

import (
	"bytes"
	"fmt"
	"log"
	"os"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/libbpf"
)

// Load an object that was compiled for libbpf, and attach its programs to the
// probes that their sections name.
func ExampleLoadCollectionSpec() {
	spec, err := libbpf.LoadCollectionSpec("probes.bpf.o")
	if err != nil {
		log.Fatal(err)
	}
	mgr, err := usdt.NewManager(spec, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer mgr.Close()
	coll, err := ebpf.NewCollectionWithOptions(spec, *mgr.CollectionOptions())
	if err != nil {
		log.Fatal(err)
	}
	defer coll.Close()
	links, err := libbpf.AttachSections(mgr, spec, coll, usdt.Target{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, lnk := range links {
		fmt.Println("attached to", lnk)
	}
}

// Load an object that is not a file.
func ExampleLoadCollectionSpecFromReader() {
	object, err := os.ReadFile("probes.bpf.o") // or embedded by go:embed
	if err != nil {
		log.Fatal(err)
	}
	spec, err := libbpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(spec.Programs), "programs")
}
