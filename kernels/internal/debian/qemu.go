// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

// Emulator is a QEMU for one machine.
type Emulator struct {
	// Path is the program, Version what it calls itself.
	Path, Version string
	// Libraries are directories with shared libraries that the program needs
	// and the machine does not have.
	Libraries []string
	// Firmware are directories for QEMU's option -L.
	Firmware []string
}

// minimumQEMU is the first version that runs all of the matrix: under 7.2,
// traced programs on s390x die at random.
const minimumQEMU = 10

// Emulator returns a QEMU for the machine: the installed one where it is new
// enough, else one that is unpacked in the cache.
func (c *Cache) Emulator(ctx context.Context, m platform.Machine) (Emulator, error) {
	installed, installedError := installedEmulator(ctx, m)
	if installedError == nil {
		return installed, nil
	}
	unlock, err := c.lock()
	if err != nil {
		return Emulator{}, err
	}
	defer unlock()
	e, err := c.unpackedEmulator(ctx, m)
	if err == nil {
		return e, nil
	}
	if err := c.fetchQEMU(ctx); err != nil {
		return Emulator{}, fmt.Errorf("no emulator for %s: %w; %w", m.Name, installedError, err)
	}
	return c.unpackedEmulator(ctx, m)
}

func installedEmulator(ctx context.Context, m platform.Machine) (Emulator, error) {
	path, err := exec.LookPath(m.Emulator)
	if err != nil {
		return Emulator{}, err
	}
	return checked(ctx, Emulator{Path: path})
}

func (c *Cache) unpackedEmulator(ctx context.Context, m platform.Machine) (Emulator, error) {
	root := filepath.Join(c.Dir, "qemu")
	e := Emulator{Path: filepath.Join(root, "usr", "bin", m.Emulator)}
	for _, pattern := range []string{"usr/lib/*-linux-gnu*", "lib/*-linux-gnu*"} {
		dirs, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return Emulator{}, err
		}
		e.Libraries = append(e.Libraries, dirs...)
	}
	for _, dir := range []string{"usr/share/qemu", "usr/share/seabios"} {
		e.Firmware = append(e.Firmware, filepath.Join(root, dir))
	}
	return checked(ctx, e)
}

// checked runs an emulator to see whether it starts and is new enough.
func checked(ctx context.Context, e Emulator) (Emulator, error) {
	cmd := e.Command(ctx, "--version")
	out, err := cmd.Output()
	if err != nil {
		return Emulator{}, fmt.Errorf("%s does not start: %w", e.Path, err)
	}
	var major int
	if _, err := fmt.Sscanf(string(out), "QEMU emulator version %d.", &major); err != nil {
		return Emulator{}, fmt.Errorf("%s does not tell its version: %w", e.Path, err)
	}
	if major < minimumQEMU {
		return Emulator{}, fmt.Errorf("%s is version %d, older than %d", e.Path, major, minimumQEMU)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	e.Version = strings.TrimPrefix(line, "QEMU emulator version ")
	return e, nil
}

// Command prepares a run of the emulator.
func (e Emulator) Command(ctx context.Context, arguments ...string) *exec.Cmd {
	for _, dir := range e.Firmware {
		arguments = append([]string{"-L", dir}, arguments...)
	}
	cmd := exec.CommandContext(ctx, e.Path, arguments...)
	if len(e.Libraries) > 0 {
		path := strings.Join(e.Libraries, ":")
		if old := os.Getenv("LD_LIBRARY_PATH"); old != "" {
			path += ":" + old
		}
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+path)
	}
	return cmd
}

// fetchQEMU unpacks QEMU for all machines, and the libraries that this machine
// lacks for it, from the machine's own suite, or that suite's backports where
// there are any.
func (c *Cache) fetchQEMU(ctx context.Context) error {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return err
	}
	suite := codename(string(release))
	if suite == "" {
		return errors.New("/etc/os-release does not name the release (VERSION_CODENAME)")
	}
	// Debian's installed packages need not be fetched again.
	status, err := os.ReadFile("/var/lib/dpkg/status")
	if err != nil {
		return err
	}
	dir := filepath.Join(c.Dir, "apt", "qemu")
	a, err := newApt(ctx, dir, "", "deb", status, suite, suite+"-backports")
	if err != nil {
		return err
	}
	target := suite + "-backports"
	if a.update(ctx, true) != nil {
		if a, err = newApt(ctx, dir, "", "deb", status, suite); err != nil {
			return err
		}
		if err := a.update(ctx, true); err != nil {
			return err
		}
		target = suite
	}
	install := []string{"install", "--yes", "--no-install-recommends", "--download-only",
		"--target-release", target}
	for _, m := range platform.Machines() {
		install = append(install, m.EmulatorPackage)
	}
	// What an earlier version needed would stay.
	archives := filepath.Join(dir, "archives")
	if err := os.RemoveAll(archives); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(archives, "partial"), 0o755); err != nil {
		return err
	}
	if _, err := a.get(ctx, dir, install...); err != nil {
		return fmt.Errorf("fetching QEMU: %w", err)
	}
	temporary, err := os.MkdirTemp(c.Dir, "unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	if err := unpackAll(ctx, archives, temporary); err != nil {
		return err
	}
	if err := os.RemoveAll(archives); err != nil {
		return err
	}
	// os.MkdirTemp makes it for its owner alone.
	if err := os.Chmod(temporary, 0o755); err != nil {
		return err
	}
	return replace(temporary, filepath.Join(c.Dir, "qemu"))
}

// codename reads the name of the release from os-release(5).
func codename(text string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return strings.Trim(value, `"'`)
		}
	}
	return ""
}
