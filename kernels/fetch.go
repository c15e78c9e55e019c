// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gousdt/gousdt/kernels/internal/platform"
	"github.com/gousdt/gousdt/kernels/internal/vm"
)

// image is a kernel that is ready to be booted.
type image struct {
	version string // of its package
	path    string
	modules []string // that guests load
}

// fetch has internal/setup/debian fetch something into the cache, and returns
// the folder. If that is one of an earlier time, it says why.
func (m *matrix) fetch(ctx context.Context, arguments ...string) (folder string, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(m.repository, "internal/setup/debian"),
		arguments...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("internal/setup/debian %s: %w\n%s", strings.Join(arguments, " "), err,
			&said)
	}
	if said.Len() > 0 {
		m.progress("%s", strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// kernel returns the newest kernel of a series that its suites have.
func (m *matrix) kernel(ctx context.Context, k platform.Kernel) (image, error) {
	if k.File != "" {
		_, err := os.Stat(k.File)
		return image{path: k.File}, err
	}
	machine, err := platform.MachineByName(k.Machine)
	if err != nil {
		return image{}, err
	}
	folder, err := m.fetch(ctx,
		append([]string{"kernel", k.Machine, machine.Flavour, k.Series}, k.Suites...)...)
	if err != nil {
		return image{}, err
	}
	// The folder is named PACKAGE_VERSION_ARCHITECTURE.
	_, version, _ := strings.Cut(filepath.Base(folder), "_")
	version, _, _ = strings.Cut(version, "_")
	modules, err := filepath.Glob(filepath.Join(folder, "*.ko"))
	return image{version, filepath.Join(folder, "kernel"), modules}, err
}

// emulator returns a QEMU for a machine: the installed one where it is new
// enough, else one that is unpacked in the cache.
func (m *matrix) emulator(ctx context.Context, machine platform.Machine) (vm.Emulator, error) {
	installed, reason := vm.FindEmulator(ctx, machine, "")
	if reason == nil {
		return installed, nil
	}
	if e, err := vm.FindEmulator(ctx, machine, filepath.Join(m.cache, "qemu")); err == nil {
		return e, nil
	}
	arguments := []string{"qemu"}
	for _, each := range platform.Machines() {
		arguments = append(arguments, each.EmulatorPackage)
	}
	folder, err := m.fetch(ctx, arguments...)
	if err != nil {
		return vm.Emulator{}, fmt.Errorf("no emulator for %s: %w; %w", machine.Name, reason, err)
	}
	return vm.FindEmulator(ctx, machine, folder)
}
