// SPDX-License-Identifier: BSD-2-Clause

// Command bpf2go runs the command of that name of cilium/ebpf, with the include
// directories of a program that reads the arguments of USDT probes:
//
//	//go:generate go run github.com/gousdt/gousdt/usdt/bpf/bpf2go -target amd64,arm64 probe probe.bpf.c
//
// The arguments are those of cilium/ebpf's command, which has to be in the
// go.mod of the module: go get github.com/cilium/ebpf/cmd/bpf2go.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/gousdt/gousdt/usdt/bpf"
)

func main() {
	err := run(os.Args[1:])
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed): // it has said why
		os.Exit(failed.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "bpf2go:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	include, err := os.MkdirTemp("", "gousdt-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(include)
	if err := os.CopyFS(filepath.Join(include, "bpf"), bpf.Headers()); err != nil {
		return err
	}
	all := append([]string{"run", "github.com/cilium/ebpf/cmd/bpf2go"}, args...)
	if !slices.Contains(args, "--") {
		all = append(all, "--")
	}
	// The object is the same wherever the headers were.
	all = append(all, "-I"+include, "-ffile-prefix-map="+include+"=gousdt")
	// Debian has asm/types.h in a directory for each machine.
	machines, err := filepath.Glob("/usr/include/*-linux-gnu")
	if err != nil {
		return err
	}
	for _, directory := range machines {
		all = append(all, "-idirafter", directory)
	}
	command := exec.Command("go", all...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	return command.Run()
}
