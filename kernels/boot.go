// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gousdt/gousdt/kernels/internal/checkout"
	"github.com/gousdt/gousdt/kernels/internal/debian"
	"github.com/gousdt/gousdt/kernels/internal/platform"
	"github.com/gousdt/gousdt/kernels/internal/vm"
)

const bootUsage = `Usage: kernels boot -kernel KERNEL [flags] TEST-BINARY [test flags]

Boots a kernel under QEMU, runs a test binary in it as root, and ends with the
test's exit status. The machine is the one that the binary is for. The working
directory must be the binary's package, as go test has it: its testdata and those
at the top come along, and the traced programs that are built for the machine.

  -kernel KERNEL   a file, or a series like 6.12 or newest: fetched and cached
  -file SRC:DST    take a file or directory of the host into the guest (may be
  -dir SRC:DST     repeated); DST is absolute or relative to the checkout
  -libs DIR        look here first for shared libraries of dynamic programs (may
                   be repeated)
  -env NAME        pass an environment variable on (may be repeated); those that
                   start with GOUSDT_ always are
  -append WORDS    add to the kernel's command line
  -memory MB       memory of the guest, 1024 by default
  -timeout TIME    end the test after this time where it has no -timeout of its
                   own, 30m by default
  -v               print what firmware and kernel say, the times, and what
                   shared libraries are missing

Example:
  $ go -C kernels build -o /tmp/kernels .
  $ GOARCH=s390x CGO_ENABLED=0 go test -exec '/tmp/kernels boot -kernel 6.12' ./usdt
`

// boot runs a test binary and returns its exit status.
func boot(ctx context.Context, arguments []string) (int, error) {
	var o bootOptions
	flags := newFlags("boot", bootUsage)
	flags.StringVar(&o.kernel, "kernel", "", "")
	flags.Var(&o.files, "file", "")
	flags.Var(&o.files, "dir", "")
	flags.Var(&o.libraries, "libs", "")
	flags.Var(&o.env, "env", "")
	flags.StringVar(&o.parameters, "append", "", "")
	flags.IntVar(&o.memory, "memory", 0, "")
	flags.DurationVar(&o.timeout, "timeout", 30*time.Minute, "")
	flags.BoolVar(&o.verbose, "v", false, "")
	flags.Parse(arguments)
	if flags.NArg() == 0 || o.kernel == "" {
		flags.Usage()
		os.Exit(2)
	}
	return o.run(ctx, flags.Arg(0), flags.Args()[1:])
}

type bootOptions struct {
	kernel, parameters    string
	files, libraries, env list
	memory                int
	timeout               time.Duration
	verbose               bool
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func (o bootOptions) run(ctx context.Context, binary string, arguments []string) (int, error) {
	machine, err := platform.MachineOfFile(binary)
	if err != nil {
		return 0, err
	}
	repository, err := checkout.Find()
	if err != nil {
		return 0, err
	}
	cacheDir, err := debian.CacheDir()
	if err != nil {
		return 0, err
	}
	cache := &debian.Cache{Dir: cacheDir}
	guestName, image, err := findKernel(ctx, cache, machine, o.kernel)
	if err != nil {
		return 0, err
	}
	emulator, err := cache.Emulator(ctx, machine)
	if err != nil {
		return 0, err
	}
	work, err := os.MkdirTemp("", "gousdt-boot-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	first, err := vm.BuildInit(ctx, machine, repository, work)
	if err != nil {
		return 0, err
	}
	guest, err := o.assemble(machine, repository, guestName, binary, arguments)
	if err != nil {
		return 0, err
	}
	result, err := guest.Run(ctx, vm.Options{
		Emulator: emulator, Kernel: image.Path, Modules: image.Modules, Init: first,
		Parameters: strings.Fields(o.parameters), Memory: o.memory,
		Output: func(job int, line string) {
			// Around the test, the firmware and the kernel speak. The end of
			// that is in the error, if there is one.
			switch {
			case job != vm.NoJob:
				fmt.Println(line)
			case o.verbose:
				fmt.Fprintln(os.Stderr, line)
			}
		},
	})
	if o.verbose {
		fmt.Fprintf(os.Stderr, "boot: Linux %s, %.1f s to boot, %.1f s in all\n",
			result.Release, result.Boot.Seconds(), result.Total.Seconds())
	}
	if err != nil {
		return 0, err
	}
	return result.Statuses[0], nil
}

// findKernel takes a path or a series. The name is MACHINE/SERIES where it is
// known.
func findKernel(
	ctx context.Context, cache *debian.Cache, machine platform.Machine, kernel string,
) (name string, image debian.Image, err error) {
	if _, err := os.Stat(kernel); err == nil || strings.ContainsRune(kernel, filepath.Separator) {
		return machine.Name, debian.Image{Path: kernel}, err
	}
	k, err := platform.ParseKernel(machine.Name + "/" + kernel)
	if err != nil {
		return "", image, err
	}
	image, err = cache.Kernel(ctx, k)
	if err != nil {
		return "", image, err
	}
	if image.Stale != nil {
		fmt.Fprintf(os.Stderr, "boot: taking an earlier kernel from the cache: %v\n", image.Stale)
	}
	return k.String(), image, nil
}

// assemble puts the guest together.
func (o bootOptions) assemble(
	machine platform.Machine, repository, name, binary string, arguments []string,
) (*vm.Guest, error) {
	arguments, timeout, err := vm.TestArguments(arguments, o.timeout)
	if err != nil {
		return nil, err
	}
	guest, err := vm.NewGuest(machine, repository, vm.Environment(name, os.Environ(), o.env))
	if err != nil {
		return nil, err
	}
	if err := guest.AddTest(binary, ".", timeout, arguments...); err != nil {
		return nil, err
	}
	for _, pair := range o.files {
		source, target, ok := strings.Cut(pair, ":")
		if !ok {
			return nil, fmt.Errorf("-file %s: want SRC:DST", pair)
		}
		if err := guest.Add(target, source); err != nil {
			return nil, err
		}
	}
	missing, err := guest.AddLibraries(o.libraries...)
	if err != nil {
		return nil, err
	}
	if o.verbose {
		for _, library := range missing {
			fmt.Fprintf(os.Stderr, "boot: no shared library %s\n", library)
		}
	}
	return guest, nil
}
