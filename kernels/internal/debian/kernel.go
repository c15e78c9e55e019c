// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

// Image is a kernel that is ready to be booted.
type Image struct {
	// Package and Version are what it was unpacked from.
	Package, Version string
	// Path is the kernel.
	Path string
	// Modules are the kernel's modules that guests load, in the order in which
	// they are loaded: what a module depends on comes before it.
	Modules []string
	// Stale is set where the image is an earlier one, from the cache, because
	// the archive could not be asked: the reason.
	Stale error
}

// Kernel returns the newest kernel of a series, fetching it where the cache
// does not have it.
func (c *Cache) Kernel(ctx context.Context, k platform.Kernel) (Image, error) {
	unlock, err := c.lock()
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	if image, ok := c.today(k); ok && !c.Refresh {
		return image, nil
	}

	var reasons []error
	for _, suite := range k.Suites {
		image, err := c.kernelOf(ctx, k, suite, false)
		var gone *goneError
		if errors.As(err, &gone) {
			// The index is of this morning, the package of yesterday.
			image, err = c.kernelOf(ctx, k, suite, true)
		}
		if err == nil {
			return image, c.remember(k, image)
		}
		if ctx.Err() != nil {
			return Image{}, ctx.Err()
		}
		reasons = append(reasons, err)
	}
	reason := fmt.Errorf("kernel %v: %w", k, errors.Join(reasons...))
	if image, ok := c.cached(k); ok {
		image.Stale = reason
		return image, nil
	}
	return Image{}, reason
}

// goneError says that a package of the index could not be fetched.
type goneError struct{ err error }

func (e *goneError) Error() string { return e.err.Error() }
func (e *goneError) Unwrap() error { return e.err }

func (c *Cache) kernelOf(
	ctx context.Context, k platform.Kernel, suite string, force bool,
) (Image, error) {
	machine, err := platform.MachineByName(k.Machine)
	if err != nil {
		return Image{}, err
	}
	a, err := c.suite(ctx, suite, k.Machine, force)
	if err != nil {
		return Image{}, err
	}
	packages, err := a.index(ctx, func(name string) bool { return IsKernel(name, machine.Flavour) })
	if err != nil {
		return Image{}, err
	}
	p, ok := NewestKernel(packages, k)
	if !ok {
		return Image{}, fmt.Errorf("suite %s has no kernel of series %s for %s", suite, k.Series,
			k.Machine)
	}
	image := c.image(k.Machine, p.Name+"_"+p.Version)
	if image.complete() {
		return image, nil
	}

	temporary, err := os.MkdirTemp(c.Dir, "unpack-")
	if err != nil {
		return Image{}, err
	}
	defer os.RemoveAll(temporary)
	tree := filepath.Join(temporary, "tree")
	for i, name := range kernelPackages(p.Name) {
		dir := filepath.Join(temporary, fmt.Sprint("package", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return Image{}, err
		}
		deb, err := a.download(ctx, dir, name+"="+p.Version)
		if err != nil {
			return Image{}, err
		}
		if _, err := command(ctx, "dpkg-deb", "-x", deb, tree); err != nil {
			return Image{}, fmt.Errorf("unpacking %s: %w", name, err)
		}
	}
	taken := filepath.Join(temporary, "image")
	if err := takeKernel(ctx, tree, taken); err != nil {
		return Image{}, fmt.Errorf("package %s: %w", p.Name, err)
	}
	if err := replace(taken, filepath.Dir(image.Path)); err != nil {
		return Image{}, err
	}
	return c.image(k.Machine, p.Name+"_"+p.Version), nil
}

// image describes the kernel in a directory of the cache, which is named
// PACKAGE_VERSION.
func (c *Cache) image(machine, name string) Image {
	dir := filepath.Join(c.Dir, "linux", machine, name)
	// The names begin with the order. The error is that of a malformed pattern.
	modules, _ := filepath.Glob(filepath.Join(escapePattern(dir), modulesDir, "*"+moduleSuffix))
	name, version, _ := strings.Cut(name, "_")
	return Image{Package: name, Version: version, Path: filepath.Join(dir, kernelFile),
		Modules: modules}
}

func (i Image) complete() bool {
	info, err := os.Stat(i.Path)
	return err == nil && info.Mode().IsRegular()
}

// remember notes which kernel is the newest of a series, today returns it as
// long as the note is fresh: reading an index takes seconds.
func (c *Cache) remember(k platform.Kernel, image Image) error {
	return os.WriteFile(c.note(k), []byte(filepath.Base(filepath.Dir(image.Path))), 0o644)
}

func (c *Cache) today(k platform.Kernel) (Image, bool) {
	info, err := os.Stat(c.note(k))
	if err != nil || time.Since(info.ModTime()) > freshness {
		return Image{}, false
	}
	file, err := os.ReadFile(c.note(k))
	if err != nil || filepath.Base(string(file)) != string(file) {
		return Image{}, false
	}
	image := c.image(k.Machine, string(file))
	return image, image.complete()
}

func (c *Cache) note(k platform.Kernel) string {
	return filepath.Join(c.Dir, "linux", k.Machine, "series-"+k.Series)
}

// cached returns the newest kernel of the series in the cache.
func (c *Cache) cached(k platform.Kernel) (newest Image, ok bool) {
	files, err := os.ReadDir(filepath.Join(c.Dir, "linux", k.Machine))
	if err != nil {
		return Image{}, false
	}
	for _, file := range files {
		image := c.image(k.Machine, file.Name())
		release, err := platform.ParseRelease(image.Version)
		if err != nil || !k.Has(release) || !image.complete() {
			continue
		}
		if !ok || CompareVersions(image.Version, newest.Version) > 0 {
			newest, ok = image, true
		}
	}
	return newest, ok
}
