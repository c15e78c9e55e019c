// SPDX-License-Identifier: BSD-2-Clause

package vm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

// Guest is what an emulated machine will have in it.
type Guest struct {
	machine  platform.Machine
	checkout string // the repository's directory on the host
	archive  archive
	env      []string
	jobs     []platform.Job
}

const (
	// guestCheckout is the guest's directory that stands for the checkout.
	guestCheckout = "/src"
	// guestModules is its directory with the modules of its kernel.
	guestModules = "/gousdt/modules"
)

// GuestVariable is the environment variable that tells a test in which kernel
// it was meant to run: MACHINE/SERIES, as platform.ParseKernel reads it, or
// only MACHINE where the kernel was given as a file. A test that needs to know
// whether it runs in a guest looks for it.
const GuestVariable = "GOUSDT_GUEST"

// NewGuest returns a guest with the testdata of the repository in the host's
// directory checkout, and with them the traced programs, as far as they are
// built. (Also those for other machines, which are small: there are tests of
// what cannot be traced.) Its tests see those variables of the host's
// environment that start with "GOUSDT_", but not those that name places on the
// host. kernel is the value of [GuestVariable].
func NewGuest(
	machine platform.Machine, checkout, kernel string, environment []string,
) (*Guest, error) {
	g := &Guest{machine: machine, checkout: checkout}
	g.env = []string{
		"PATH=/bin",
		"HOME=/root",
		"TMPDIR=/tmp",
		"TERM=dumb",
		"GOUSDT_TESTDATA=" + path.Join(guestCheckout, "testdata", "build"),
		GuestVariable + "=" + kernel,
	}
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "GOUSDT_") && name != GuestVariable && name != "GOUSDT_TESTDATA" {
			g.env = append(g.env, variable)
		}
	}
	for _, dir := range []string{"/bin", "/root", "/tmp"} {
		g.archive.addDir(dir)
	}
	return g, g.archive.addTree(path.Join(guestCheckout, "testdata"),
		filepath.Join(checkout, "testdata"))
}

// AddTest adds a test binary that was built from the package in the host's
// directory dir, and a run of it with these arguments. The guest ends a run
// that takes longer than timeout.
func (g *Guest) AddTest(binary, dir string, timeout time.Duration, arguments ...string) error {
	relative, err := filepath.Rel(g.checkout, dir)
	if err != nil || relative == ".." || strings.HasPrefix(relative, "../") {
		return fmt.Errorf("%s is not in the checkout %s", dir, g.checkout)
	}
	at := path.Join(guestCheckout, filepath.ToSlash(relative))
	program := path.Join(at, filepath.Base(binary))
	if err := g.archive.addFile(program, binary); err != nil {
		return err
	}
	if err := g.archive.addTree(path.Join(at, "testdata"), filepath.Join(dir, "testdata")); err != nil {
		return err
	}
	g.jobs = append(g.jobs, platform.Job{
		Path: program, Dir: at, Args: arguments,
		Env:     append(slices.Clip(g.env), "PWD="+at),
		Timeout: timeout,
	})
	return nil
}

// AddLibraries adds the dynamic loaders and shared libraries that the guest's
// programs need, from those of the host and of the cross compilers.
func (g *Guest) AddLibraries() error {
	for _, p := range g.machine.Programs {
		if err := g.archive.addLibraries(p); err != nil {
			return err
		}
	}
	return nil
}

// write writes the guest's initramfs. The guest itself may be run again, with
// another plan.
func (g *Guest) write(file string, o Options, plan platform.Plan) error {
	all := archive{maps.Clone(g.archive.entries)}
	for _, module := range o.Modules {
		at := path.Join(guestModules, filepath.Base(module))
		if err := all.addFile(at, module); err != nil {
			return err
		}
		plan.Modules = append(plan.Modules, at)
	}
	text, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	all.addBytes(platform.PlanFile, string(text))
	if err := all.addFile("/init", o.Init); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := all.write(w); err != nil {
		return err
	}
	return errors.Join(w.Flush(), f.Close())
}
