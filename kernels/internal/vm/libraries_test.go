// SPDX-License-Identifier: BSD-2-Clause

package vm

import (
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/kernels/internal/platform"
)

// A dynamic program that every machine has. Its libraries are read, so that
// the test knows what to expect without knowing the machine.
func dynamicProgram(t *testing.T) (string, platform.Program) {
	t.Helper()
	testneeds.Only(t, "others have other programs", "linux")
	machine, err := platform.MachineByName(runtime.GOARCH)
	qt.Assert(t, qt.IsNil(err))
	const shell = "/bin/sh"
	f, err := elf.Open(shell)
	if errors.Is(err, fs.ErrNotExist) {
		testneeds.Missing(t, "needs a dynamic program, %s", shell)
	}
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	qt.Assert(t, qt.IsNil(err))
	if len(libraries) == 0 {
		testneeds.Missing(t, "needs a dynamic program: %s is static here", shell)
	}
	return shell, machine.Programs[0]
}

func TestDynamicProgramGetsItsLoaderAndLibraries(t *testing.T) {
	shell, program := dynamicProgram(t)
	var a archive
	qt.Assert(t, qt.IsNil(a.addFile("/bin/sh", shell)))
	qt.Assert(t, qt.IsNil(a.addLibraries(program)))
	qt.Assert(t, qt.IsTrue(has(&a, program.GuestLibraries+"/libc.so.6")))
	// The C library names its loader in the form in which programs do.
	runs, needs, err := a.needs(program, "/bin/sh")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsTrue(runs))
	qt.Assert(t, qt.IsTrue(filepath.IsAbs(needs[0])))
	qt.Assert(t, qt.IsTrue(has(&a, needs[0])), qt.Commentf("loader %s", needs[0]))
}

func TestLibraryThatIsNowhereIsLeftOut(t *testing.T) {
	shell, program := dynamicProgram(t)
	program.Libraries = []string{t.TempDir()}
	var a archive
	qt.Assert(t, qt.IsNil(a.addFile("/bin/sh", shell)))
	qt.Assert(t, qt.IsNil(a.addLibraries(program)))
	qt.Assert(t, qt.IsFalse(has(&a, program.GuestLibraries+"/libc.so.6")))
}

func TestFilesOfOtherMachinesAndNoProgramsAskForNothing(t *testing.T) {
	shell, program := dynamicProgram(t)
	text := filepath.Join(t.TempDir(), "text")
	qt.Assert(t, qt.IsNil(os.WriteFile(text, []byte("\x7fELF, says the text"), 0o644)))
	empty := filepath.Join(t.TempDir(), "empty")
	qt.Assert(t, qt.IsNil(os.WriteFile(empty, nil, 0o644)))

	var a archive
	qt.Assert(t, qt.IsNil(a.addFile("/bin/sh", shell)))
	qt.Assert(t, qt.IsNil(a.addFile("/text", text)))
	qt.Assert(t, qt.IsNil(a.addFile("/empty", empty)))
	other := program
	other.Type = elf.EM_68K
	qt.Assert(t, qt.IsNil(a.addLibraries(other)))
	qt.Assert(t, qt.IsFalse(has(&a, program.GuestLibraries)))
}

func TestLibraryOfAnotherKindDoesNotCount(t *testing.T) {
	shell, program := dynamicProgram(t)
	other := filepath.Join(t.TempDir(), "libc.so.6")
	qt.Assert(t, qt.IsNil(os.WriteFile(other, []byte("of another machine"), 0o644)))

	var a archive
	qt.Assert(t, qt.IsNil(a.addFile("/lib/other/libc.so.6", other)))
	qt.Assert(t, qt.IsNil(a.addFile("/bin/sh", shell)))
	qt.Assert(t, qt.IsNil(a.addLibraries(program)))
	qt.Assert(t, qt.IsTrue(has(&a, program.GuestLibraries+"/libc.so.6")))
}
