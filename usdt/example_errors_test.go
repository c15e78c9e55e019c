// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/usdt"
)

// Tell a missing probe from other errors.
func ExampleNotFoundError() {
	sel, err := usdt.Select(usdt.Target{Path: "/usr/bin/python3"},
		elfnote.MustParsePattern("python:function__*"))
	var notFound *usdt.NotFoundError
	switch {
	case errors.As(err, &notFound):
		fmt.Printf("there is no such probe; there are %v\n", notFound.Nearest)
	case err != nil:
		fmt.Println(err)
	default:
		defer sel.Close()
		fmt.Println(sel.Len(), "sites can be attached")
	}
}

// Room for many probes that all have different arguments, on any kernel.
func ExampleNewManager() {
	spec, err := loadTracer()
	if err != nil {
		log.Fatal(err)
	}
	mgr, err := usdt.NewManager(spec, &usdt.ManagerOptions{
		Mode:     usdt.ModeAuto,
		MaxSpecs: 4096,
		Programs: []string{"count"}, // with any section
	})
	if err != nil {
		log.Fatal(err)
	}
	defer mgr.Close()
}
