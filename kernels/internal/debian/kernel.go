// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

// Cache is a directory with what was fetched:
//
//	apt/MACHINE-SERIES/      apt's state, with the indexes of the suites
//	linux/MACHINE/PACKAGE/   a kernel, and the modules that guests load
//	qemu/                    QEMU and its libraries, unpacked
//
// Several processes may use one at a time.
type Cache struct {
	// Dir is created where it is missing.
	Dir string
}

// OpenCache returns the cache in "gousdt/kernels" in the user's cache directory
// ($XDG_CACHE_HOME, or ~/.cache). It may be deleted at any time.
func OpenCache() (*Cache, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("no cache directory for kernels: %w (set HOME or XDG_CACHE_HOME)",
			err)
	}
	return &Cache{filepath.Join(dir, "gousdt", "kernels")}, nil
}

// lock keeps other processes from fetching the same thing meanwhile.
func (c *Cache) lock() (unlock func(), err error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the cache: %w", err)
	}
	return Lock(filepath.Join(c.Dir, "lock"))
}

// Lock waits until no other process has the lock on a file, which is created
// where it is missing, and takes it. The system gives it back when the process
// ends.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o666)
	if err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// replace puts the file or directory made at temporary in the place of target.
func replace(temporary, target string) error {
	if err := os.RemoveAll(target); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return os.Rename(temporary, target)
}

// Image is a kernel that is ready to be booted.
type Image struct {
	// Version is that of its package.
	Version string
	// Path is the kernel.
	Path string
	// Modules are the kernel's modules that guests load. The archive drops
	// those of a backport before the kernel: then there are none.
	Modules []string
	// Stale is set where something could not be fetched, and what the cache or
	// other suites have was taken: the reason.
	Stale error
}

// Kernel returns the newest kernel of a series that its suites have. It is
// fetched where the cache does not have it.
func (c *Cache) Kernel(ctx context.Context, k platform.Kernel) (Image, error) {
	if k.File != "" {
		_, err := os.Stat(k.File)
		return Image{Path: k.File}, err
	}
	unlock, err := c.lock()
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	image, err := c.fetch(ctx, k)
	if err == nil || ctx.Err() != nil {
		return image, err
	}
	err = fmt.Errorf("kernel %v: %w", k, err)
	files, _ := os.ReadDir(filepath.Join(c.Dir, "linux", k.Machine))
	var names []string
	for _, file := range files {
		names = append(names, file.Name())
	}
	if name, ok := newestKernel(names, k); ok {
		image = c.image(k.Machine, name)
		image.Stale = err
		return image, nil
	}
	return Image{}, err
}

func (c *Cache) fetch(ctx context.Context, k platform.Kernel) (image Image, err error) {
	dir := filepath.Join(c.Dir, "apt", strings.ReplaceAll(k.String(), "/", "-"))
	a, err := newApt(ctx, dir, k.Machine, "deb", nil, k.Suites...)
	if err != nil {
		return Image{}, err
	}
	updateError := a.update(ctx, false)
	err = a.retry(ctx, func() error { image, err = c.take(ctx, a, k, 0); return err })
	if err == nil {
		image.Stale = updateError
		return image, nil
	}
	// An index may name a kernel that the archive does not have any more, and
	// older ones that it has.
	for older := 1; older <= mostOlder && ctx.Err() == nil; older++ {
		if image, olderError := c.take(ctx, a, k, older); olderError == nil {
			image.Stale = err
			return image, nil
		}
	}
	return Image{}, errors.Join(updateError, err)
}

// mostOlder is how many older kernels are tried.
const mostOlder = 3

// take fetches the newest kernel that the indexes of a have, or one that is
// older by some packages.
func (c *Cache) take(ctx context.Context, a *apt, k platform.Kernel, older int) (Image, error) {
	out, err := command(ctx, a.dir, "apt-cache", "-c", filepath.Join(a.dir, "apt.conf"),
		"pkgnames", "linux-")
	if err != nil {
		return Image{}, err
	}
	names := strings.Fields(string(out))
	name, ok := newestKernel(names, k)
	for ; ok && older > 0; older-- {
		names = slices.DeleteFunc(names, func(n string) bool { return n == name })
		name, ok = newestKernel(names, k)
	}
	if !ok {
		return Image{}, fmt.Errorf("no kernel of series %s for %s in %s", k.Series, k.Machine,
			strings.Join(k.Suites, ", "))
	}
	file, err := a.file(ctx, name)
	if err != nil {
		return Image{}, err
	}
	file = strings.TrimSuffix(file, filepath.Ext(file))
	image := c.image(k.Machine, file)
	if info, err := os.Stat(image.Path); err == nil && info.Mode().IsRegular() {
		return image, nil
	}
	temporary, err := os.MkdirTemp(c.Dir, "unpack-")
	if err != nil {
		return Image{}, err
	}
	defer os.RemoveAll(temporary)
	tree, taken := filepath.Join(temporary, "tree"), filepath.Join(temporary, "image")
	if err := a.unpack(ctx, name, tree); err != nil {
		return Image{}, err
	}
	if version, apart := strings.CutPrefix(name, "linux-binary-"); apart {
		modules := "linux-modules-" + version
		// An error means that the index does not have them.
		if _, err := a.file(ctx, modules); err == nil {
			if err := a.unpack(ctx, modules, tree); err != nil {
				return Image{}, err
			}
		}
	}
	if err := takeKernel(ctx, tree, taken); err != nil {
		return Image{}, fmt.Errorf("package %s: %w", name, err)
	}
	if err := replace(taken, filepath.Dir(image.Path)); err != nil {
		return Image{}, err
	}
	return c.image(k.Machine, file), nil
}

// image describes the kernel in a directory of the cache, which is named
// PACKAGE_VERSION_ARCHITECTURE.
func (c *Cache) image(machine, name string) Image {
	dir := filepath.Join(c.Dir, "linux", machine, name)
	image := Image{Path: filepath.Join(dir, "kernel")}
	_, rest, _ := strings.Cut(name, "_")
	image.Version, _, _ = strings.Cut(rest, "_")
	for _, module := range guestModules {
		file := filepath.Join(dir, module)
		if _, err := os.Stat(file); err == nil {
			image.Modules = append(image.Modules, file)
		}
	}
	return image
}

var number = regexp.MustCompile(`\d+`)

// newestKernel returns the newest package with a kernel of k's series. Such
// packages are named linux-image-VERSION-FLAVOUR, from 6.19 on
// linux-binary-VERSION-FLAVOUR: linux-image-VERSION then only asks for that.
// The version is like 6.12.107+deb13, 6.1.0-56, 6.1.0-0.deb11.52. What follows
// an underscore is not part of the name.
func newestKernel(names []string, k platform.Kernel) (newest string, ok bool) {
	machine, err := platform.MachineByName(k.Machine)
	if err != nil {
		return "", false
	}
	pattern := regexp.MustCompile(`^linux-(image|binary)-(\d[^-_]*(?:-\d[^-_]*)*)-` +
		regexp.QuoteMeta(machine.Flavour) + `(-unsigned)?(_.*)?$`)
	var best []int
	for _, name := range names {
		match := pattern.FindStringSubmatch(name)
		if match == nil {
			continue
		}
		release, err := platform.ParseRelease(match[2])
		if err != nil || !k.Has(release) || match[1] == "image" && release.AtLeast(6, 19) {
			continue
		}
		var version []int
		for _, digits := range number.FindAllString(match[2]+match[4], -1) {
			n, _ := strconv.Atoi(digits) // a number too large is the largest
			version = append(version, n)
		}
		// Of two names for one version, signed and unsigned, either will do.
		if slices.Compare(version, best) > 0 {
			newest, best = name, version
		}
	}
	return newest, best != nil
}

// guestModules are what tests want of a kernel that Debian's have as modules:
// the file systems by which a user without privileges, or a container, has
// files that are not what they seem. Neither depends on other modules.
var guestModules = []string{"fuse.ko", "overlay.ko"}

// takeKernel moves the kernel of unpacked packages, below the directory tree,
// into the directory target, and with it the modules that guests load. The
// kernel is called vmlinuz, or vmlinux where it is not compressed, and is in
// /boot or, in newer packages, below /usr/lib. Not all kernels can uncompress
// their modules.
func takeKernel(ctx context.Context, tree, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	found := false
	err := fs.WalkDir(os.DirFS(tree), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		file, base := filepath.Join(tree, name), d.Name()
		switch plain := strings.TrimSuffix(base, ".xz"); {
		case isKernel(name):
			found = true
			return os.Rename(file, filepath.Join(target, "kernel"))
		case !slices.Contains(guestModules, plain):
			return nil
		case plain != base:
			if _, err := command(ctx, "", "xz", "--decompress", file); err != nil {
				return fmt.Errorf("module %s: %w (apt-get install xz-utils)", plain, err)
			}
			fallthrough
		default:
			return os.Rename(strings.TrimSuffix(file, ".xz"), filepath.Join(target, plain))
		}
	})
	if err == nil && !found {
		err = errors.New("it has no kernel")
	}
	return err
}

var kernelName = regexp.MustCompile(`^(boot|usr/lib/.*)/vmlinu[xz](-[^/]*)?$`)

func isKernel(name string) bool { return kernelName.MatchString(name) }
