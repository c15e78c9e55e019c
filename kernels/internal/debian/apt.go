// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// mirror is where the machine gets its packages.
type mirror struct {
	// archive is the address of Debian's archive, security that of its
	// security updates ("" where the machine has none).
	archive, security string
}

// machineMirror asks the machine's apt. Both ways of writing sources, and
// mirror lists, are apt's business.
func machineMirror(ctx context.Context) (mirror, error) {
	out, err := command(ctx, "apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)",
		"Created-By: Packages")
	if err != nil {
		return mirror{}, fmt.Errorf("asking apt for the machine's mirror: %w", err)
	}
	m := parseMirror(string(out))
	if m.archive == "" {
		return mirror{}, errors.New("asking apt for the machine's mirror: the machine has no package sources (see sources.list(5))")
	}
	return m, nil
}

// parseMirror reads lines of a suite and an address. The machine's own suite
// comes first in any usual configuration.
func parseMirror(lines string) mirror {
	var m mirror
	for line := range strings.Lines(lines) {
		suite, address, ok := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case !ok || address == "":
		case isSecurity(suite):
			if m.security == "" {
				m.security = address
			}
		case m.archive == "":
			m.archive = address
		}
	}
	return m
}

func isSecurity(suite string) bool { return strings.HasSuffix(suite, "-security") }

// keyring has the keys of all of Debian's releases, also of those that the
// machine does not use itself.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// source is a line for sources.list.
func (m mirror) source(suite string) (string, error) {
	address := m.archive
	if isSecurity(suite) {
		if address = m.security; address == "" {
			return "", fmt.Errorf("the machine has no source of security updates, where %s would be", suite)
		}
	}
	options := ""
	if _, err := os.Stat(keyring); err == nil {
		options = "[signed-by=" + keyring + "] "
	}
	return "deb " + options + address + " " + suite + " main\n", nil
}

// apt is an apt with a state of its own.
type apt struct {
	dir string
}

// newApt sets up an apt below dir for packages of one architecture. The
// packages described by status (in dpkg's format) count as installed.
func newApt(dir, architecture, sources string, status []byte) (*apt, error) {
	for _, sub := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	a := &apt{dir: dir}
	for name, text := range map[string]string{
		"sources.list": sources,
		"status":       string(status),
		"apt.conf":     configuration(dir, architecture),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// configuration is read after the machine's own, from which proxies,
// time-outs and the like stay.
func configuration(dir, architecture string) string {
	return fmt.Sprintf(`Dir::State %[1]q;
Dir::State::status %[2]q;
Dir::Cache %[1]q;
Dir::Etc::sourcelist %[3]q;
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
#clear APT::Architectures;
APT::Architecture %[4]q;
APT::Architectures { %[4]q; };
// The cache may belong to a user whom apt's own user cannot write for.
APT::Sandbox::User "root";
// Suites that are no longer updated have a date behind them.
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
// What the machine does after its own updates is not for this one.
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
`, dir, filepath.Join(dir, "status"), filepath.Join(dir, "sources.list"), architecture)
}

// freshness is how long an index is good for.
const freshness = 24 * time.Hour

// update fetches the indexes, unless they are fresh.
func (a *apt) update(ctx context.Context, force bool) error {
	stamp := filepath.Join(a.dir, "updated")
	info, err := os.Stat(stamp)
	if err == nil && time.Since(info.ModTime()) < freshness && !force {
		return nil
	}
	_, err = a.get(ctx, a.dir, "update", "--error-on=any")
	for _, wait := range updateWaits {
		if err == nil || !isHalfUpdated(err) {
			break
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
		_, err = a.get(ctx, a.dir, "update", "--error-on=any")
	}
	if err != nil {
		return err
	}
	return os.WriteFile(stamp, nil, 0o644)
}

// updateWaits are the waits before an update is tried again.
var updateWaits = []time.Duration{5 * time.Second, 20 * time.Second, time.Minute}

// isHalfUpdated reports whether an index was not the one that the suite's list
// of indexes names: the mirror was being updated, or a cache on the way had one
// of the two from before.
func isHalfUpdated(err error) bool {
	return strings.Contains(err.Error(), "Hashes of expected file")
}

// index reads the packages of all indexes whose names keep accepts.
func (a *apt) index(ctx context.Context, keep func(name string) bool) ([]Package, error) {
	out, err := a.get(ctx, a.dir, "indextargets", "--format", "$(FILENAME)", "Created-By: Packages")
	if err != nil {
		return nil, err
	}
	var list []Package
	for file := range strings.Lines(string(out)) {
		// An index is stored as it came, compressed in one of several ways.
		text, err := command(ctx, "/usr/lib/apt/apt-helper", "cat-file", strings.TrimSpace(file))
		if err != nil {
			return nil, err
		}
		packages, err := ReadIndex(bytes.NewReader(text), keep)
		if err != nil {
			return nil, err
		}
		list = append(list, packages...)
	}
	return list, nil
}

// get runs apt-get in a directory.
func (a *apt) get(ctx context.Context, dir string, arguments ...string) ([]byte, error) {
	arguments = append([]string{"-q", "-c", filepath.Join(a.dir, "apt.conf")}, arguments...)
	return commandIn(ctx, dir, "apt-get", arguments...)
}

func command(ctx context.Context, name string, arguments ...string) ([]byte, error) {
	return commandIn(ctx, "", name, arguments...)
}

// commandIn runs a program and returns its standard output. The error of one
// that fails has the end of what it said.
func commandIn(ctx context.Context, dir, name string, arguments ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		said := lastLines(stderr.String(), 5)
		if said == "" {
			return nil, fmt.Errorf("%s %s: %w", filepath.Base(name),
				strings.Join(arguments, " "), err)
		}
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(name), err, said)
	}
	return stdout.Bytes(), nil
}

// lastLines returns the last lines of a text that are not empty, as one line.
func lastLines(text string, n int) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}
