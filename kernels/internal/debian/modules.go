// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// guestModules are what tests want of a kernel that Debian's have as modules:
// the file systems by which a user without privileges, or a container, has
// files that are not what they seem.
var guestModules = []string{"fuse", "overlay"}

// moduleName returns the name of the module in a file, as other modules write
// it. ok is false for other files.
func moduleName(file string) (name string, ok bool) {
	name, ok = strings.CutSuffix(strings.TrimSuffix(file, ".xz"), moduleSuffix)
	return strings.ReplaceAll(name, "-", "_"), ok
}

// modules are copied into a directory in the order in which they are loaded.
type modules struct {
	available map[string]string // files of the package, by names
	dir       string
	taken     []string // names
	above     []string // those that want the one that is being taken
}

// take copies a module, and before it those that it depends on. (modules.dep,
// which says the same of all modules, is made when a package is installed.)
func (m *modules) take(ctx context.Context, name string) error {
	if slices.Contains(m.taken, name) {
		return nil
	}
	if slices.Contains(m.above, name) {
		return errors.New("it depends on itself")
	}
	file, ok := m.available[name]
	if !ok {
		return errors.New("the package does not have it")
	}
	text, err := readModule(ctx, file)
	if err != nil {
		return err
	}
	needed, err := moduleDependencies(text)
	if err != nil {
		return err
	}
	m.above = append(m.above, name)
	for _, other := range needed {
		if err := m.take(ctx, other); err != nil {
			return fmt.Errorf("it depends on %s: %w", other, err)
		}
	}
	m.above = m.above[:len(m.above)-1]
	target := filepath.Join(m.dir, fmt.Sprintf("%02d-%s%s", len(m.taken), name, moduleSuffix))
	m.taken = append(m.taken, name)
	return os.WriteFile(target, text, 0o644)
}

// readModule reads a module, which may be compressed. Not all kernels can
// uncompress their modules.
func readModule(ctx context.Context, file string) ([]byte, error) {
	if !strings.HasSuffix(file, ".xz") {
		return os.ReadFile(file)
	}
	text, err := command(ctx, "xz", "--decompress", "--stdout", file)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("%w (apt-get install xz-utils)", err)
	}
	return text, err
}

// moduleDependencies returns the names of the modules that a module depends on.
func moduleDependencies(module []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	section := file.Section(".modinfo")
	if section == nil {
		return nil, errors.New("it has no section .modinfo")
	}
	text, err := section.Data()
	if err != nil {
		return nil, err
	}
	for field := range strings.SplitSeq(string(text), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok && list != "" {
			return strings.Split(strings.ReplaceAll(list, "-", "_"), ","), nil
		}
	}
	return nil, nil
}
