// SPDX-License-Identifier: BSD-2-Clause

package uprobeevent

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/proc"
)

// Remove removes the events of processes that have ended, and returns their
// names. An event stays while its owner may run. An owner in another PID
// namespace may run as long as any process of that is left, and always if this
// process does not see the namespace.
func Remove() (removed []string, err error) {
	tracefs, err := findTracefs()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(tracefs, "events", Group))
	if err != nil {
		return nil, ignoreMissing(err)
	}
	var errs []error
	ended := make(map[owner]bool)
	for _, entry := range entries {
		o, ok := parseName(entry.Name())
		if !ok {
			continue
		}
		if _, known := ended[o]; !known {
			ended[o] = o.hasEnded()
		}
		if !ended[o] {
			continue
		}
		// Another process may be removing it as well.
		if err := ignoreMissing(remove(tracefs, entry.Name())); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, entry.Name())
	}
	return removed, errors.Join(errs...)
}

// hasEnded reports whether the process has certainly ended.
func (o owner) hasEnded() bool {
	fs := procfs.NewFS("")
	own, err := pidNamespace("self")
	if err != nil || !procfs.HasOwnPIDs(fs.Root()) {
		return false
	}
	if own == o.namespace {
		return o.hasEndedHere(fs)
	}
	// The initial namespace sees all processes, if nothing hides them.
	if first, err := pidNamespace("1"); err != nil || first != sys.InitialPIDNamespace ||
		own != sys.InitialPIDNamespace {
		return false
	}
	pids, err := fs.PIDs()
	if err != nil {
		return false
	}
	for _, pid := range pids {
		namespace, err := pidNamespace(strconv.Itoa(pid))
		switch {
		case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH):
		case err != nil:
			return false
		case namespace == o.namespace:
			return false // it may be the owner
		}
	}
	return true
}

// hasEndedHere is hasEnded for an owner in this process's namespace.
func (o owner) hasEndedHere(fs *procfs.FS) bool {
	// Unlike a directory in /proc, nothing hides this.
	if err := unix.Kill(o.pid, 0); errors.Is(err, unix.ESRCH) {
		return true
	}
	p, err := proc.Find(fs, o.pid)
	if err != nil || p.StartTime == o.startTime {
		return false
	}
	// A process in another time namespace reads its start by another clock.
	descriptors := filepath.Join("/proc", strconv.Itoa(o.pid), "fd")
	open, err := os.ReadDir(descriptors)
	if err != nil {
		return false
	}
	for _, entry := range open {
		target, err := os.Readlink(filepath.Join(descriptors, entry.Name()))
		if err != nil && !errors.Is(err, os.ErrNotExist) ||
			strings.HasPrefix(target, "anon_inode:[perf_event]") {
			return false
		}
	}
	return true
}
