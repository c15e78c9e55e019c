// SPDX-License-Identifier: BSD-2-Clause

package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gousdt/gousdt/kernels/internal/initramfs"
	"github.com/gousdt/gousdt/kernels/internal/platform"
	"github.com/gousdt/gousdt/kernels/internal/protocol"
)

// Guest is what an emulated machine will have in it.
type Guest struct {
	machine  platform.Machine
	checkout string // the repository's directory on the host
	archive  initramfs.Archive
	env      []string
	jobs     []protocol.Job
}

// The guest's directory that stands for the checkout, and in it the directory
// of the traced programs.
const (
	guestCheckout = "/src"
	guestBuild    = guestCheckout + "/testdata/build"
)

// guestModules is the guest's directory with the modules of its kernel.
const guestModules = "/gousdt/modules"

// NewGuest returns a guest with the testdata of the repository in the host's
// directory checkout, and with them the traced programs, as far as they are
// built. (Also those for other machines, which are small: there are tests of
// what cannot be traced.) env is added to the environment of all tests
// ("NAME=value").
func NewGuest(machine platform.Machine, checkout string, env []string) (*Guest, error) {
	g := &Guest{machine: machine, checkout: checkout}
	g.env = append([]string{
		"PATH=/bin",
		"HOME=/root",
		"TMPDIR=/tmp",
		"TERM=dumb",
		"GOUSDT_TESTDATA=" + guestBuild,
	}, env...)
	for _, dir := range []string{"/bin", "/root", "/tmp"} {
		if err := g.archive.AddDir(dir); err != nil {
			return nil, err
		}
	}
	err := g.archive.AddTree(path.Join(guestCheckout, "testdata"),
		filepath.Join(checkout, "testdata"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return g, nil
}

// AddTest adds a test binary that was built from the package in the host's
// directory dir, and a run of it with these arguments. The guest ends a run
// that takes longer than timeout.
func (g *Guest) AddTest(binary, dir string, timeout time.Duration, arguments ...string) error {
	at, err := g.place(dir)
	if err != nil {
		return err
	}
	program := path.Join(at, filepath.Base(binary))
	if err := g.archive.AddFile(program, binary); err != nil {
		return err
	}
	// The testdata at the top are there already.
	if at != guestCheckout {
		err := g.archive.AddTree(path.Join(at, "testdata"), filepath.Join(dir, "testdata"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	g.jobs = append(g.jobs, protocol.Job{
		Path: program, Dir: at, Args: arguments,
		Env:     append(slices.Clip(g.env), "PWD="+at),
		Timeout: timeout,
	})
	return nil
}

// place returns the guest's directory for one of the host's.
func (g *Guest) place(dir string) (string, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	relative, err := filepath.Rel(g.checkout, absolute)
	if err != nil || relative == ".." || strings.HasPrefix(relative, "../") {
		return "", fmt.Errorf("%s is not in the checkout %s", dir, g.checkout)
	}
	return path.Join(guestCheckout, filepath.ToSlash(relative)), nil
}

// Add adds a file or directory of the host under an absolute name, or one
// that is relative to the directory that stands for the checkout.
func (g *Guest) Add(name, source string) error {
	if !path.IsAbs(name) {
		name = path.Join(guestCheckout, name)
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return g.archive.AddTree(name, source)
	}
	return g.archive.AddFile(name, source)
}

// AddLibraries adds the dynamic loaders and shared libraries that the guest's
// programs need, from the host's directories dirs and those of the cross
// compilers. The result names those that were not found.
func (g *Guest) AddLibraries(dirs ...string) (missing []string, err error) {
	for _, p := range g.machine.Programs {
		more, err := g.archive.AddLibraries(p, dirs...)
		if err != nil {
			return nil, err
		}
		missing = append(missing, more...)
	}
	return missing, nil
}
