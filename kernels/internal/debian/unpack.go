// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// What the directory of a kernel in the cache has in it.
const (
	kernelFile   = "kernel"
	modulesDir   = "modules"
	moduleSuffix = ".ko"
)

// kernelPackages returns the packages that a kernel is unpacked from: the one
// that holds it, and from 6.19 on one with its modules.
func kernelPackages(name string) []string {
	rest, apart := strings.CutPrefix(name, "linux-binary-")
	if !apart {
		return []string{name}
	}
	return []string{name, "linux-modules-" + strings.TrimSuffix(rest, "-unsigned")}
}

// takeKernel moves the kernel of unpacked packages, below the directory tree,
// into the directory target, and with it the modules that guests load.
func takeKernel(ctx context.Context, tree, target string) error {
	if err := os.MkdirAll(filepath.Join(target, modulesDir), 0o755); err != nil {
		return err
	}
	var kernel string
	available := make(map[string]string)
	err := filepath.WalkDir(tree, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		relative, err := filepath.Rel(tree, file)
		if err != nil {
			return err
		}
		if isKernelFile(filepath.ToSlash(relative)) {
			kernel = file
		} else if name, ok := moduleName(filepath.Base(file)); ok {
			available[name] = file
		}
		return nil
	})
	if err != nil {
		return err
	}
	if kernel == "" {
		return errors.New("it has no kernel")
	}
	if err := os.Rename(kernel, filepath.Join(target, kernelFile)); err != nil {
		return err
	}
	loaded := modules{available: available, dir: filepath.Join(target, modulesDir)}
	for _, name := range guestModules {
		if _, ok := available[name]; !ok {
			continue // it may be built in: the tests of the kernel say if it is there
		}
		if err := loaded.take(ctx, name); err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
	}
	return nil
}

// isKernelFile reports whether a file of a package is the kernel. It is called
// vmlinuz, or vmlinux where it is not compressed, and is in /boot or, in newer
// packages, below /usr/lib.
func isKernelFile(name string) bool {
	dir, base := path.Split(path.Clean("/" + name))
	if dir != "/boot/" && !strings.HasPrefix(dir, "/usr/lib/") {
		return false
	}
	base, _, _ = strings.Cut(base, "-")
	return base == "vmlinuz" || base == "vmlinux"
}

// escapePattern returns a pattern for filepath.Glob that matches a path alone.
func escapePattern(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
