// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/sys"
)

// A Target is the file whose probes are meant, and optionally the one process
// in which they are.
//
// Exactly one of Path, ELF and Selection is set.
type Target struct {
	// Path is the path of an executable or shared library. It has a slash:
	// "./program" is a file in the working directory.
	//
	// With a PID, an absolute path is that of the process: it is looked up
	// under the root directory of the process. A bare name without a slash,
	// such as "libc.so.6", is one of the files that the process has mapped. A
	// relative path, and one below /proc, are always the caller's.
	//
	// Without a PID a bare name is an error. FindFile of package usdt/libbpf
	// looks it up. Package trace, too, takes bare names.
	Path string

	// ELF is a file that has been opened already. [elfnote.NewFile] takes an
	// *os.File, whose name does not matter: the file may have been deleted, or
	// belong to another mount namespace. The caller closes it, once Attach has
	// returned or the Selection is closed.
	ELF *elfnote.File

	// Selection is a result of [Select], to choose among its sites or to attach
	// them. It has its own PID: see [Selection.ForPID].
	Selection *Selection

	// PID restricts the attachment to one process with all its threads. It is a
	// PID of the caller's PID namespace; a thread's is an error. 0 means every
	// process that maps the file, now or later. Finding the file through a
	// process of another user needs CAP_SYS_PTRACE.
	PID int

	// Symbols, if set, returns what has the symbols that arguments name: the
	// file with more than its own, as DebugSymbols of package stack adds those
	// of the separate debug file. Without it no other file is read. [Select]
	// calls it once. With a nil result every argument is Unavailable. If the
	// result also has a method DebugFile() (*os.File, error), package trace
	// reads DWARF from the file that it returns.
	Symbols func(*elfnote.File) argspec.File

	// MaxSites is the most sites that may match: more are an error. A perf
	// event counts as eight. The number of different arguments may be four
	// times that. 0 means no limit, except that on the arguments of any file:
	// see [Select].
	MaxSites int

	// NoLease lets other processes write to the file without waiting. By
	// default a read lease of the kernel makes a process that opens the file
	// for writing, or truncates it, wait until everything is detached: a
	// breakpoint in a file that was written to is in the wrong place, and
	// kills the program that runs it. It waits some 30 ms in [ModeMulti], 0.1
	// to 0.35 s for each perf event in other modes, and longer if this process
	// is stopped, up to /proc/sys/fs/lease-break-time (45 s). With
	// NoLease, and where there can be no lease, the file is detached after the
	// first write to it, which may be too late.
	//
	// A lease takes a descriptor, and CAP_LEASE unless the caller owns the
	// file. There is none on network file systems, nor while another process
	// has the file open for writing. While anything is attached, this process
	// has one thread more, a signalfd and an inotify instance, with NoLease
	// too. The kernel signals that thread alone, by real-time signal 62.
	NoLease bool
}

// A keptFile is what an ELF is read from that several selections share, so that
// it is opened and read once: the watcher of processes keeps it.
type keptFile interface {
	// Name is the path of the file for texts, as the process sees it.
	Name() string
	// Hold returns the file, and keeps it open until release is called. The
	// file is nil if it has been closed.
	Hold() (file *elfnote.File, release func())
	// Sites returns those of the file, as [elfnote.File.Sites] does.
	Sites() iter.Seq2[elfnote.Site, error]
	// Verify returns an error if the file does not have these sites any more.
	Verify() error
	// Written is called, on a goroutine of its own, once everything is detached
	// from the file because it is written to.
	Written(elffile.Internal)
}

func (t *Target) check() error {
	given := slices.DeleteFunc([]bool{t.Path != "", t.ELF != nil, t.Selection != nil},
		func(is bool) bool { return !is })
	switch {
	case len(given) == 1:
		return nil
	case len(given) == 0 && t.PID != 0:
		return errors.New("the target has a PID but no file: set its Path (a bare name such as " +
			"libc.so.6 is looked up among the files that the process has mapped)")
	}
	return fmt.Errorf("a target needs exactly one of Path, ELF and Selection, not %d of them", len(given))
}

// opened is a target's file, ready to be read and to be named to the kernel.
// Selections of the same file share it.
type opened struct {
	elf        *elfnote.File
	symbols    argspec.File                   // that arguments name
	sites      iter.Seq2[elfnote.Site, error] // of the file
	kept       keptFile                       // nil for a file of the caller
	descriptor int                            // that names the file to the kernel, see path
	name       string                         // in texts
	holder     *holder                        // of the guard
	attach     multiAttach

	// mu is held for reading while the file is used, so that closing does not
	// give the descriptor, and with it the path, to another file in the middle
	// of an attachment.
	mu      sync.RWMutex
	closed  bool
	closers []func() error
}

func (o *opened) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	var errs error
	for _, closeIt := range slices.Backward(o.closers) {
		errs = errors.Join(errs, closeIt())
	}
	o.closers = nil
	return errs
}

// path names the file to the kernel, which takes only a path. It leads to the
// very file that was parsed, also when its name has been given to another file
// since, or means another file in this mount namespace.
func (o *opened) path() string { return "/proc/self/fd/" + strconv.Itoa(o.descriptor) }

func (t Target) open() (_ *opened, err error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	if err := sys.CheckTracee(t.PID); err != nil {
		return nil, err
	}

	o := &opened{elf: t.ELF, attach: (*link.Executable).UprobeMulti}
	if t.ELF != nil {
		o.kept, _ = t.ELF.Reader().(keptFile)
	}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	switch {
	case t.Path != "":
		isNew := false
		if err = o.openPath(t); err == nil {
			isNew, err = o.guard(&t)
		}
		if err == nil && isNew {
			// Its headers may have been read before the last write.
			first := o.elf
			if err = o.openPath(t); err == nil && !sameFile(first, o.elf) {
				err = fmt.Errorf("%s: %w", t.Path, ErrWritten)
			}
		}
	case o.kept != nil:
		err = o.openKept()
	}
	if err != nil {
		return nil, err
	}

	if o.symbols = o.elf; t.Symbols != nil {
		o.symbols = t.Symbols(o.elf)
	}
	file := elffile.OSFile(o.elf)
	if file == nil {
		return nil, errors.New("only a file of the file system can be attached to, not bytes")
	}
	if o.name == "" {
		o.name = file.Name()
		if t.PID != 0 {
			o.name = strings.TrimPrefix(o.name, fmt.Sprintf("/proc/%d/root", t.PID))
		}
	}
	o.descriptor = int(file.Fd())
	if t.ELF != nil && o.kept == nil { // the caller may close it
		if o.descriptor, err = unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return nil, fmt.Errorf("%s: %w", o.name, err)
		}
		o.closers = append(o.closers, func() error { return unix.Close(o.descriptor) })
	}
	if t.Path == "" {
		if _, err := o.guard(&t); err != nil {
			return nil, err
		}
	}
	if o.kept != nil {
		if err := o.kept.Verify(); err != nil {
			return nil, fmt.Errorf("%s: %w", o.name, err)
		}
	}
	if o.sites == nil {
		o.sites = o.elf.Sites()
	}
	if err := attachable(o.elf); err != nil {
		return nil, fmt.Errorf("%s: %w", o.name, err)
	}
	return o, nil
}

// guard guards the file, and reports whether it was written to a moment ago. A
// lease needs an open file description that nobody else has a lease on.
func (o *opened) guard(t *Target) (isNew bool, err error) {
	fd := int(elffile.OSFile(o.elf).Fd())
	closeFile, onWrite := func() { unix.Close(fd) }, func() {}
	switch {
	case o.kept != nil:
		_, closeFile = o.kept.Hold()
		onWrite = func() { o.kept.Written(elffile.Internal{}) }
	case t.ELF != nil:
		fd, err = unix.Open(o.path(), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err == nil {
			break
		}
		fallthrough
	default:
		fd, err = unix.FcntlInt(elffile.OSFile(o.elf).Fd(), unix.F_DUPFD_CLOEXEC, 0)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", o.name, err)
	}
	o.holder = newGuard(cmp.Or(o.name, t.Path), fd, !t.NoLease, closeFile, onWrite)
	o.closers = append(o.closers, func() error {
		o.holder.release()
		return nil
	})
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return err == nil && time.Since(time.Unix(st.Ctim.Unix())) < time.Second, nil
}

func sameFile(a, b *elfnote.File) bool {
	first, err := elffile.OSFile(a).Stat()
	second, err2 := elffile.OSFile(b).Stat()
	return err == nil && err2 == nil && os.SameFile(first, second)
}

func (o *opened) openPath(t Target) error {
	var file *os.File // where it can only be reached through the process
	var err error
	name := t.Path
	switch bare := !strings.Contains(t.Path, "/"); {
	case bare && t.PID != 0:
		file, name, err = t.findInProcess()
	case bare:
		return fmt.Errorf("%s: a bare name needs the PID of a process that has mapped the file: give the "+
			"path (libbpf.FindFile looks it up; ./%[1]s is in the working directory)", name)
	case t.PID != 0 && filepath.IsAbs(t.Path) && !strings.HasPrefix(filepath.Clean(t.Path), "/proc/"):
		file, err = procfs.OpenIn("", t.PID, t.Path)
	}
	switch isAccess := t.PID != 0 && errors.Is(err, procfs.ErrAccess); {
	case t.PID != 0 && errors.Is(err, procfs.ErrGone),
		isAccess && errors.Is(sys.CheckTracee(t.PID), procfs.ErrGone): // nobody may read one that ends
		return sys.Gone(t.PID)
	case isAccess:
		return &attaching.PermissionError{Op: "reading a process", Err: err}
	case err != nil:
	case file == nil:
		o.elf, err = elfnote.Open(name)
	default:
		o.name = name // not that of the link in /proc it was opened by
		o.closers = append(o.closers, file.Close)
		o.elf, err = elfnote.NewFile(file)
	}
	if err == nil {
		o.closers = append(o.closers, o.elf.Close)
	}
	return err // which names the file
}

func (o *opened) openKept() error {
	o.name = o.kept.Name() // not that of the link in /proc it was opened by
	elf, release := o.kept.Hold()
	o.closers = append(o.closers, func() error {
		release()
		return nil
	})
	if o.elf = elf; elf == nil {
		return fmt.Errorf("%s: %w", o.name, sys.ClosedError("file (the process does not map it any more)"))
	}
	o.sites = o.kept.Sites()
	return nil
}

// findInProcess finds a bare name among the files that the process has mapped.
func (t Target) findInProcess() (*os.File, string, error) {
	files, err := procfs.Files("", t.PID)
	if err != nil && len(files) == 0 {
		return nil, "", err
	}
	isBase := func(file, name string) bool { return path.Base(file) == name }
	for _, isNamed := range []func(file, name string) bool{isBase, procfs.IsNamed} {
		for _, mapped := range files {
			if isNamed(mapped.Path, t.Path) {
				file, err := mapped.Open()
				return file, mapped.Path, err
			}
		}
	}
	return nil, "", fmt.Errorf("%s: %w: process %d maps no file of that name (give its path as the "+
		"process sees it)", t.Path, os.ErrNotExist, t.PID)
}
