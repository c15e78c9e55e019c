// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

// BuildPackages lists the packages that building the traced programs of all
// machines takes: a compiler and a C library for each, and what all share. With
// them is what the modules of kernels are unpacked with.
func BuildPackages() []string {
	list := []string{"make", "systemtap-sdt-dev", "lld", "xz-utils"}
	for _, m := range platform.Machines() {
		for _, p := range m.Programs {
			if p.Name == runtime.GOARCH {
				list = append(list, "gcc", "libc6-dev")
				continue
			}
			list = append(list, p.Packages...)
		}
	}
	return list
}

// Missing returns those of the packages that are not installed.
func Missing(ctx context.Context, packages []string) ([]string, error) {
	query := append([]string{"--show", "--showformat", "${Package} ${db:Status-Status}\n"},
		packages...)
	out, err := exec.CommandContext(ctx, "dpkg-query", query...).Output()
	// Status 1 says that some are unknown: they are not installed.
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return nil, fmt.Errorf("asking for installed packages: %w (this works on Debian)", err)
	}
	return missingFrom(packages, string(out)), nil
}

func missingFrom(packages []string, status string) []string {
	installed := make(map[string]bool)
	for line := range strings.Lines(status) {
		name, state, _ := strings.Cut(strings.TrimSpace(line), " ")
		installed[name] = installed[name] || state == "installed"
	}
	var missing []string
	for _, name := range packages {
		if !installed[name] {
			missing = append(missing, name)
		}
	}
	return missing
}

// Install installs packages on this machine, which takes root's rights.
func Install(ctx context.Context, packages []string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("installing packages needs root: run apt-get install --no-install-recommends %s", strings.Join(packages, " "))
	}
	if _, err := command(ctx, "apt-get", "update", "-q"); err != nil {
		return err
	}
	_, err := command(ctx, "apt-get",
		append([]string{"install", "-q", "--yes", "--no-install-recommends"}, packages...)...)
	return err
}
