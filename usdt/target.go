// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/ldso"
	"github.com/gousdt/gousdt/proc"
)

// A Target says whose probes are meant: a file, and the processes that run it.
//
// Exactly one of Path, File and ELF is set.
type Target struct {
	// Path is the path of an executable or shared library, or a bare name without a slash, which is looked up
	// as the dynamic linker would ("libc.so.6") and then in $PATH ("python3").
	//
	// With a PID, an absolute path and a bare name are taken as that process sees them: under its root
	// directory, and a bare name first among the files that it has mapped. A relative path is always
	// relative to the working directory of the caller.
	Path string

	// File is an open file; its name does not matter, so it may have been deleted or belong to another mount
	// namespace. It stays open and stays the caller's.
	File *os.File

	// ELF is a file that has been parsed already. It must have been opened from a path or an *os.File. It stays
	// open and stays the caller's.
	ELF *elfnote.File

	// PID restricts the attachment to a process, all its threads, as seen in the caller's PID namespace.
	// 0 means every process that maps the file, now or later.
	PID int

	// DebugFile names a separate debug file, for the symbols that arguments like "8@counter(%rip)" refer to. If
	// empty, such arguments are resolved from the file itself and, where that is stripped, from the debug file
	// that carries the same build ID under /usr/lib/debug.
	DebugFile string
}

// opened is a target's file, ready to be read and to be named to the kernel.
type opened struct {
	elf     *elfnote.File
	path    string // what the kernel is told: it stands for the open file, whatever happens to its name
	name    string // what a person is told
	closers []func() error
	closed  bool
}

func (o *opened) close() error {
	o.closed = true
	var errs []error
	for _, c := range o.closers {
		errs = append(errs, c())
	}
	o.closers = nil
	return errors.Join(errs...)
}

// shared is the same file, which closing it leaves open.
func (o *opened) shared() *opened {
	return &opened{elf: o.elf, path: o.path, name: o.name, closed: o.closed}
}

func (t Target) open() (*opened, error) {
	given := 0
	for _, set := range []bool{t.Path != "", t.File != nil, t.ELF != nil} {
		if set {
			given++
		}
	}
	if given != 1 {
		return nil, fmt.Errorf("a target needs exactly one of Path, File and ELF, not %d of them", given)
	}
	if t.PID < 0 {
		return nil, fmt.Errorf("a target's PID cannot be negative (%d); 0 means every process", t.PID)
	}
	if t.PID > 0 {
		if err := unix.Kill(t.PID, 0); errors.Is(err, unix.ESRCH) {
			return nil, &ProcessError{PID: t.PID, Err: fmt.Errorf("%w: no such process", os.ErrNotExist)}
		}
	}

	o := &opened{elf: t.ELF}
	switch {
	case t.File != nil:
		file, err := elfnote.NewFile(t.File)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.File.Name(), err)
		}
		o.elf = file
		o.closers = append(o.closers, file.Close)
	case t.Path != "":
		if err := o.openPath(t); err != nil {
			return nil, err
		}
	}

	o.name = strings.TrimPrefix(o.elf.Name(), t.root())
	file := o.elf.OSFile()
	if file == nil {
		o.close()
		return nil, fmt.Errorf("%s: only a file of the file system can be attached to, not a reader of bytes", o.name)
	}
	// The kernel takes a path. This one leads to the very file that was parsed, also when its name has been
	// given to another file since, or means another file in this mount namespace.
	o.path = "/proc/self/fd/" + strconv.Itoa(int(file.Fd()))

	if err := attachable(o.elf); err != nil {
		o.close()
		return nil, fmt.Errorf("%s: %w", o.name, err)
	}
	return o, nil
}

// openPath opens the file that t.Path means.
func (o *opened) openPath(t Target) error {
	var (
		file *os.File // where it can only be reached through the process
		name = t.Path
		err  error
	)
	switch bare := !strings.Contains(t.Path, "/"); {
	case bare && t.PID != 0:
		file, name, err = t.findInProcess()
	case bare:
		name, err = ldso.Find(t.Path, nil)
	case t.PID != 0 && filepath.IsAbs(t.Path) && !strings.HasPrefix(t.Path, "/proc/"):
		file, err = proc.NewFS("").OpenIn(t.PID, t.Path)
	}
	if err != nil {
		return err
	}

	if file == nil {
		if o.elf, err = elfnote.Open(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		o.closers = append(o.closers, o.elf.Close)
		return nil
	}
	if o.elf, err = elfnote.NewFile(file); err != nil {
		file.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	o.closers = append(o.closers, o.elf.Close, file.Close)
	return nil
}

// findInProcess finds a file by its name alone, first among those that the process has mapped. It is a path, or open
// already.
func (t Target) findInProcess() (*os.File, string, error) {
	files, err := proc.NewFS("").Files(t.PID)
	if err != nil && len(files) == 0 {
		return nil, "", explainProcess(t.PID, err)
	}
	for _, mapped := range files {
		if path.Base(mapped.Path) == t.Path {
			file, err := mapped.Open()
			return file, mapped.Path, err
		}
	}
	found, err := ldso.Find(t.Path, &ldso.Options{Root: t.root()})
	return nil, found, err
}

// root leads to the root directory of the target's process.
func (t Target) root() string { return fmt.Sprintf("/proc/%d/root", t.PID) }

// attachable tells whether the running kernel could run a file at all.
func attachable(file *elfnote.File) error {
	switch file.Kind() {
	case elfnote.DebugFile:
		return errors.New("this is a separate debug file, without the machine code: attach to the file it belongs to")
	case elfnote.Relocatable:
		return errors.New("this is an object file that is not linked yet: attach to the program or library made of it")
	}
	kernel, err := kernelMachine()
	if err != nil {
		return err
	}
	if !runs(kernel, file.Machine()) || file.ByteOrder().Uint16([]byte{1, 0}) != binary.NativeEndian.Uint16([]byte{1, 0}) {
		return fmt.Errorf("the file is for %s (%s), this kernel runs %s", file.Machine(), file.ByteOrder(), kernel)
	}
	return nil
}

// runs tells whether a kernel of one machine runs programs of another.
func runs(kernel, program elf.Machine) bool {
	switch {
	case kernel == program:
		return true
	case kernel == elf.EM_X86_64:
		return program == elf.EM_386
	case kernel == elf.EM_AARCH64:
		return program == elf.EM_ARM
	default:
		return false
	}
}

// kernelMachine asks the kernel for its machine. GOARCH would not do: a 32-bit program may run on a 64-bit kernel, and
// it is the kernel that lays out the registers.
func kernelMachine() (elf.Machine, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return elf.EM_NONE, fmt.Errorf("asking for the kernel's machine: %w", err)
	}
	machine := unix.ByteSliceToString(name.Machine[:])
	switch {
	case machine == "x86_64":
		return elf.EM_X86_64, nil
	case machine == "aarch64":
		return elf.EM_AARCH64, nil
	case machine == "s390x":
		return elf.EM_S390, nil
	case machine == "ppc64" || machine == "ppc64le":
		return elf.EM_PPC64, nil
	case machine == "riscv64":
		return elf.EM_RISCV, nil
	case machine == "loongarch64":
		return elf.EM_LOONGARCH, nil
	case strings.HasPrefix(machine, "arm"):
		return elf.EM_ARM, nil
	default:
		return elf.EM_NONE, fmt.Errorf("attaching on %q is not supported", machine)
	}
}
