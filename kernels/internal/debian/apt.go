// SPDX-License-Identifier: BSD-2-Clause

// Package debian fetches kernels, and QEMU, from Debian's archive.
//
// The machine's own apt does the work: it knows the mirror, proxies and keys,
// checks that an index is the one that Debian signed and that a package is the
// one that the index names. It runs with a state of its own below the cache
// directory, so the machine's lists and packages stay as they are. Nothing is
// installed: packages are unpacked.
package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// apt is an apt with a state of its own in a directory.
type apt struct{ dir string }

// keyring has the keys of all of Debian's releases, also of those that the
// machine does not use itself.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// configuration is read after the machine's own: its proxies and time-outs
// stay. Suites that are no longer updated are past the
// date until which they are valid. The cache may belong to a user for whom
// apt's own user cannot write. What the machine does after its own updates is
// not for this one.
const configuration = `Dir::State %[1]q;
Dir::State::status "%[1]s/status";
Dir::Cache %[1]q;
Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
#clear APT::Architectures;
APT::Architecture %[2]q;
APT::Architectures { %[2]q; };
APT::Sandbox::User "root";
Acquire::Retries "5";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
`

// newApt sets up an apt for packages of one architecture, this machine's where
// it is "". Kind is "deb", or "deb-src" for sources. What status describes, in
// dpkg's format, counts as installed.
func newApt(
	ctx context.Context, dir, architecture, kind string, status []byte, suites ...string,
) (*apt, error) {
	if architecture == "" {
		out, err := command(ctx, "", "dpkg", "--print-architecture")
		if err != nil {
			return nil, err
		}
		architecture = strings.TrimSpace(string(out))
	}
	targets, err := command(ctx, "", "apt-get", "indextargets", "--format",
		"$(RELEASE) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return nil, fmt.Errorf("asking apt for the machine's mirror: %w", err)
	}
	sources, err := sourceList(string(targets), kind, suites)
	if err != nil {
		return nil, err
	}
	for _, sub := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	for name, text := range map[string]string{
		"sources.list": sources,
		"status":       string(status),
		"apt.conf":     fmt.Sprintf(configuration, dir, architecture),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return &apt{dir}, nil
}

// sourceList returns a sources.list for some suites. It is given the machine's
// own sources, a line for each, with the suite and the address. Security
// updates have an address of their own. Without one their suites are left out.
func sourceList(machine, kind string, suites []string) (string, error) {
	address := make(map[bool]string)
	for line := range strings.Lines(machine) {
		suite, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		if security := strings.HasSuffix(suite, "-security"); address[security] == "" {
			address[security] = at
		}
	}
	options := ""
	if _, err := os.Stat(keyring); err == nil {
		options = "[signed-by=" + keyring + "] "
	}
	var list strings.Builder
	for _, suite := range suites {
		if at := address[strings.HasSuffix(suite, "-security")]; at != "" {
			fmt.Fprintf(&list, "%s %s%s %s main\n", kind, options, at, suite)
		}
	}
	if list.Len() == 0 {
		return "", fmt.Errorf("the machine has no source of packages for %s (see sources.list(5))",
			strings.Join(suites, ", "))
	}
	return list.String(), nil
}

// freshness is how long an index is good for.
const freshness = 24 * time.Hour

// updateWaits are the waits before an update is tried again.
var updateWaits = []time.Duration{5 * time.Second, 20 * time.Second, time.Minute}

// update fetches the indexes, unless they are fresh. After an error, those that
// could be fetched, or are there from before, can be used. While a mirror is
// being updated, or a cache on the way has one of two files from before, an
// index is not the one that the suite's list of indexes names: that passes.
func (a *apt) update(ctx context.Context, force bool) error {
	stamp := filepath.Join(a.dir, "updated")
	info, err := os.Stat(stamp)
	if err == nil && time.Since(info.ModTime()) < freshness && !force {
		return nil
	}
	for wait := range slices.Values(append(updateWaits, 0)) {
		_, err = a.get(ctx, a.dir, "update", "--error-on=any")
		if err == nil {
			return os.WriteFile(stamp, nil, 0o644)
		}
		if ctx.Err() != nil || !strings.Contains(err.Error(), "Hashes of expected file") {
			break
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("updating the index of packages: %w", err)
}

// get runs apt-get in a directory.
func (a *apt) get(ctx context.Context, dir string, arguments ...string) ([]byte, error) {
	return command(ctx, dir, "apt-get",
		append([]string{"-q", "-c", filepath.Join(a.dir, "apt.conf")}, arguments...)...)
}

// file returns the name of a package's file, which has the version in it, or
// an error if the archive has no such package.
func (a *apt) file(ctx context.Context, name string) (string, error) {
	out, err := a.get(ctx, a.dir, "download", "--print-uris", name)
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(out)) // 'ADDRESS' FILE SIZE HASH
	if len(fields) < 2 {
		return "", fmt.Errorf("apt does not say where %s is: %q", name, out)
	}
	return fields[1], nil
}

// unpack fetches a package and unpacks it into a directory.
func (a *apt) unpack(ctx context.Context, name, tree string) error {
	dir, err := os.MkdirTemp(a.dir, "download-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if _, err := a.get(ctx, dir, "download", name); err != nil {
		return fmt.Errorf("fetching %s: %w", name, err)
	}
	return unpackAll(ctx, dir, tree)
}

// unpackAll unpacks the packages of a directory.
func unpackAll(ctx context.Context, dir, tree string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, file := range files {
		if filepath.Ext(file.Name()) != ".deb" {
			continue
		}
		if _, err := command(ctx, dir, "dpkg-deb", "-x", file.Name(), tree); err != nil {
			return fmt.Errorf("unpacking %s: %w", file.Name(), err)
		}
	}
	return nil
}

// newest is the suite with the newest released version of every package.
const newest = "sid"

// Unpack fetches the newest version of a package for this machine, or its
// source, and puts its files in the place of a directory.
func (c *Cache) Unpack(ctx context.Context, name, dir string, source bool) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	kind := "deb"
	if source {
		kind = "deb-src"
	}
	a, err := newApt(ctx, filepath.Join(c.Dir, "apt", kind), "", kind, nil, newest)
	if err != nil {
		return err
	}
	if err := a.update(ctx, false); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return err
	}
	// Beside the directory, which may be in another file system than the cache.
	temporary, err := os.MkdirTemp(filepath.Dir(dir), "unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	tree := filepath.Join(temporary, "tree")
	fetch := func() error {
		if !source {
			return a.unpack(ctx, name, tree)
		}
		if _, err := a.get(ctx, temporary, "source", "--only-source", name); err != nil {
			return fmt.Errorf("fetching the source of %s: %w", name, err)
		}
		found, err := filepath.Glob(filepath.Join(temporary, name+"-*", "."))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("fetching the source of %s: apt left %d folders (%w)", name,
				len(found), err)
		}
		return os.Rename(filepath.Clean(found[0]), tree)
	}
	if err := a.retry(ctx, fetch); err != nil {
		return err
	}
	return replace(tree, dir)
}

// retry fetches, and once more with the index of now: that of this morning may
// name a package that the archive has replaced since.
func (a *apt) retry(ctx context.Context, fetch func() error) error {
	err := fetch()
	if err == nil || ctx.Err() != nil {
		return err
	}
	if updateError := a.update(ctx, true); updateError != nil {
		return errors.Join(err, updateError)
	}
	return fetch()
}

// command runs a program in a directory and returns its standard output. The
// error of one that fails has the end of what it said.
func command(ctx context.Context, dir, name string, arguments ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		said := strings.FieldsFunc(stderr.String(), func(r rune) bool { return r == '\n' || r == '\r' })
		return nil, fmt.Errorf("%s: %w: %s", name, err,
			strings.Join(said[max(0, len(said)-5):], "; "))
	}
	return stdout.Bytes(), nil
}
