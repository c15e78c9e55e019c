// SPDX-License-Identifier: BSD-2-Clause

package vm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

// Emulator is a QEMU for one machine.
type Emulator struct {
	// Path is the program.
	Path string
	// Libraries are directories with shared libraries that the program needs
	// and the machine does not have.
	Libraries []string
	// Firmware are directories for QEMU's option -L.
	Firmware []string
}

// minimumQEMU is the first version that runs all of the matrix: under 7.2,
// traced programs on s390x die at random.
const minimumQEMU = 10

// FindEmulator returns the QEMU for a machine that is unpacked in a directory,
// or the installed one where that is "". It is an error if it does not start or
// is too old.
func FindEmulator(ctx context.Context, m platform.Machine, root string) (e Emulator, err error) {
	if root == "" {
		e.Path, err = exec.LookPath(m.Emulator)
	} else {
		e.Path = filepath.Join(root, "usr/bin", m.Emulator)
		usr, _ := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu*"))
		lib, _ := filepath.Glob(filepath.Join(root, "lib/*-linux-gnu*"))
		e.Libraries = append(usr, lib...)
		e.Firmware = []string{filepath.Join(root, "usr/share/qemu"),
			filepath.Join(root, "usr/share/seabios")}
	}
	if err != nil {
		return Emulator{}, err
	}
	out, err := e.Command(ctx, "--version").Output()
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
