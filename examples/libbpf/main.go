// SPDX-License-Identifier: BSD-2-Clause

// Command libbpf runs an object file that was compiled for libbpf, with
// libbpf's header usdt.bpf.h. It takes any such object as it is.
//
//	libbpf OBJECT [PATH PROVIDER:NAME [PID]]
//
// Programs in SEC("usdt/PATH:PROVIDER:NAME") are attached to what that says.
// Those in SEC("usdt") are attached to the probe on the command line. At the
// end it prints the object's global variables.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/libbpf"
)

func main() {
	if len(os.Args) < 2 || len(os.Args) > 5 || len(os.Args) == 3 {
		log.Fatal("usage: libbpf OBJECT [PATH PROVIDER:NAME [PID]]")
	}
	var target usdt.Target
	var probe elfnote.Pattern
	var err error
	if len(os.Args) > 3 {
		target.Path = os.Args[2]
		probe, err = elfnote.ParsePattern(os.Args[3])
	}
	if err == nil && len(os.Args) > 4 {
		target.PID, err = strconv.Atoi(os.Args[4])
	}
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, os.Args[1], target, probe); err != nil {
		log.Fatal(err)
	}
}

// run attaches the programs until the context ends.
func run(
	ctx context.Context, out io.Writer, object string, target usdt.Target, probe elfnote.Pattern,
) error {
	if err := rlimit.RemoveMemlock(); err != nil { // needed before 5.11
		return err
	}
	spec, err := libbpf.LoadCollectionSpec(object)
	if err != nil {
		return err
	}
	mgr, err := usdt.NewManager(spec, nil)
	if err != nil {
		return err
	}
	defer mgr.Close()
	collection, err := ebpf.NewCollectionWithOptions(spec, *mgr.CollectionOptions())
	if err != nil {
		return err
	}
	defer collection.Close()

	var links []*usdt.Link
	if target.Path == "" {
		links, err = libbpf.AttachSections(mgr, spec, collection, usdt.Target{}, nil)
	} else {
		for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
			section := strings.TrimPrefix(spec.Programs[name].SectionName, "?")
			if err != nil || section != "usdt" && section != "usdt.s" {
				continue
			}
			var lnk *usdt.Link
			lnk, err = mgr.Attach(collection.Programs[name], target, nil, probe)
			links = append(links, lnk)
		}
	}
	if err != nil {
		return err
	}
	for _, lnk := range links {
		fmt.Fprintf(out, "attached to %d sites of %q\n", len(lnk.Selection().Sites()), lnk.Selection().Name())
	}
	<-ctx.Done()
	return printVariables(out, collection)
}

// printVariables prints the variables that are numbers.
func printVariables(out io.Writer, collection *ebpf.Collection) error {
	for _, name := range slices.Sorted(maps.Keys(collection.Variables)) {
		variable := collection.Variables[name]
		if variable.ReadOnly() || variable.Type() == nil {
			continue
		}
		if number, ok := btf.UnderlyingType(variable.Type().Type).(*btf.Int); !ok || number.Size != 8 {
			continue
		}
		var value int64
		if err := variable.Get(&value); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s = %d\n", name, value)
	}
	return nil
}
