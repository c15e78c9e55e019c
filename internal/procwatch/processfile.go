// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/usdt/proc"
)

// ProcessFile is a file with wanted probes in a process that maps it. It does
// not change once it has been delivered, and may be used by several goroutines
// at once.
type ProcessFile struct {
	// Process is the process, as it was when the file appeared in it.
	Process proc.Process
	// File is the file, held open until the handler has returned for the
	// [Changes] in which the ProcessFile disappears. See [CachedFile.Hold] to
	// keep it longer.
	File *CachedFile
	// MappedFile says how the process has the file: its Path and its Mappings.
	*procfs.MappedFile
	executed bool      // see HasExecuted
	began    time.Time // of a process that ended before it was looked at
}

// isMappedAlike reports whether both are mapped at the same addresses by the
// same path.
func isMappedAlike(a, b *procfs.MappedFile) bool {
	return a.Path == b.Path && a.Deleted == b.Deleted && slices.Equal(a.Mappings, b.Mappings)
}

// Began returns when a process executed the program, if it had ended before it
// was looked at: its file appears and disappears at once. Else it is zero.
func (p *ProcessFile) Began() time.Time { return p.began }

// HasExecuted reports whether the process has executed a program that maps the
// file, after one that did, too: such a file has Moved.
func (p *ProcessFile) HasExecuted() bool { return p.executed }

// Kept is a file that the watcher has open, with its path in one process. Of an
// elfnote.File that is made of it, package usdt opens and reads nothing again.
type Kept struct {
	*CachedFile
	path    string
	written func() // or nil
}

// Name returns the path as the process sees it.
func (k Kept) Name() string { return k.path }

// Hold returns the file, and keeps it open until release is called.
func (k Kept) Hold() (file *elfnote.File, release func()) {
	k.CachedFile.Hold()
	return k.ELF(), k.Release
}

// Written is called once everything is detached from the file because it is
// written to.
func (k Kept) Written(elffile.Internal) {
	if k.written != nil {
		k.written()
	}
}

// Opened returns the file for elfnote.NewFile.
func (k Kept) Opened(elffile.Internal) *elfnote.File { return k.ELF() }

// ReadAt reads the file.
func (k Kept) ReadAt(p []byte, off int64) (int, error) {
	file, release := k.Hold()
	defer release()
	return file.Reader().ReadAt(p, off)
}

// Kept returns the file with its path in the process, and what Written calls.
func (p *ProcessFile) Kept(written func()) Kept { return Kept{p.File, p.Path, written} }

// ELF returns the file for usdt.Select.
func (p *ProcessFile) ELF() *elfnote.File {
	file, _ := elfnote.NewFile(p.Kept(nil)) // reads nothing
	return file
}

// View returns the part that users of a watch get.
func (p *ProcessFile) View() *proc.ProcessFile {
	return &proc.ProcessFile{Process: p.Process, Path: p.Path}
}

// Report returns a handler that reports what has appeared and disappeared to a
// user of a watch. It is nil if to is nil.
func Report(to func(appeared, disappeared []*proc.ProcessFile)) func(*Changes) {
	if to == nil {
		return nil
	}
	return func(c *Changes) {
		again := slices.DeleteFunc(slices.Clone(c.Moved),
			func(p *ProcessFile) bool { return !p.HasExecuted() })
		if len(c.Appeared)+len(again)+len(c.Disappeared) > 0 {
			to(Views(append(again, c.Appeared...)), Views(append(again, c.Disappeared...)))
		}
	}
}

// Views returns the View of each.
func Views(pairs []*ProcessFile) []*proc.ProcessFile {
	var all []*proc.ProcessFile
	for _, pair := range pairs {
		all = append(all, pair.View())
	}
	return all
}

// Mounts are the mounts of one process, asked for when they are needed. Several
// goroutines may use them at once.
type Mounts struct {
	once    sync.Once
	trusted map[uint64]bool // the numbers of those that are trusted
}

// ID returns the ID of a file that the process maps. Containers that were
// started from the same image share a file of overlayfs until one writes to it,
// and a breakpoint set in it for one of them is set for all. So these are
// merged: the device is 0, and the other fields are those of the file in the
// layer below. That file itself, reached where the layers are stored, has
// another ID.
//
// Files are merged only on mounts that were made in the initial user namespace.
// In another one, a user can mount overlayfs over an own file system, which can
// report anything.
func (m *Mounts) ID(file *procfs.MappedFile) (procfs.FileID, error) {
	found, err := file.Identify()
	if err != nil {
		return procfs.FileID{}, err
	}
	if id, ok := merged(found.FileID); ok && m.trusts(file.Dir, found.Mount) {
		return id, nil
	}
	return found.FileID, nil
}

// merged returns the ID that a file of overlayfs has in all containers. ok is
// false if it has none.
func merged(id procfs.FileID) (shared procfs.FileID, ok bool) {
	if !id.Overlay || id.Born == 0 {
		return id, false
	}
	id.Device = 0
	return id, true
}

// A Version is a file until it is written to. It stays the same when the file
// is deleted while it is in use.
type Version struct {
	procfs.FileID
	size, modified int64 // see [procfs.Contents]
}

// Version is ID for what depends on the contents.
func (m *Mounts) Version(file *procfs.MappedFile) (Version, error) {
	id, err := m.ID(file)
	return Version{id, file.Found.Size, file.Found.Modified}, err
}

// ID identifies a process for as long as the machine runs.
type ID struct {
	PID       int
	StartTime uint64
}

// TakesHits reports whether a hit at a site in the mapping reaches a uprobe:
// Linux puts none into writable and shared mappings.
func TakesHits(m procfs.Mapping) bool { return !m.Writable && !m.Shared && !m.Data }

// ErrPostponed means that the scans of a process, or of other processes of its
// container or user, have taken more than their share of the time. What it maps
// meanwhile is found when it is scanned.
var ErrPostponed = errors.New("the process, or others of its container or user, change so often or map so much that it is scanned more seldom")

// Texts brings the texts of programs into memory. What a program in the kernel
// reads has to be there. A text in a program's read-only data that nothing has
// touched yet is not, until a byte of it is read.
type Texts struct{ touching atomic.Int32 }

const (
	// touchEvery is how much of a file the kernel maps around a page that is
	// read (fault_around_bytes).
	touchEvery = 64 << 10

	// maxTouched bounds what is touched of one file in a process.
	maxTouched = 64 << 20

	// maxTouching bounds the reads that do not return: of a file whose server
	// has stopped. Each takes a thread.
	maxTouching = 8
)

// Touch brings the read-only data of a file that a process maps into its
// memory. The path is that of maps; the process may have ended. fs is the proc
// file system; "" is /proc.
func (t *Texts) Touch(ctx context.Context, fs procfs.FS, pid int, path string) {
	if t.touching.Load() >= maxTouching {
		return
	}
	t.touching.Add(1)
	done := func() { t.touching.Add(-1) }
	if deadline.One(ctx, deadline.Memory, func() {
		files, _ := procfs.AllFiles(fs, pid) // none if it has ended
		memory, err := os.Open(procfs.Path(fs.Root(), pid, "mem"))
		if err != nil {
			return
		}
		defer memory.Close()
		touched, one := uint64(0), make([]byte, 1)
		for _, file := range files {
			for _, m := range file.Mappings {
				if file.Path != path || !m.Data || m.Writable || m.Shared {
					continue
				}
				for at := m.Start; at < m.End && touched < maxTouched; at += touchEvery {
					_, _ = memory.ReadAt(one, int64(at)) // then it stays unreadable
					touched += touchEvery
				}
			}
		}
	}, done) {
		done()
	}
}
