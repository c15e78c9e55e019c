// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// A library as compilers and linkers make it, and a program that loads, unloads
// and forks as it is told by single letters.
const (
	librarySource = `
#include <sys/sdt.h>
void traced(int x) { DTRACE_PROBE1(PROVIDER, alloc, x); }
`
	loaderSource = `
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	void *library = 0;
	for (int c; (c = getchar()) != EOF; ) {
		int result = 0;
		if (c == 'l')
			result = (library = dlopen(argv[1], RTLD_NOW)) ? 0 : 1;
		else if (c == 'u')
			result = dlclose(library);
		else if (c == 'f' && (result = fork()) == 0) {
			for (;;)
				pause();
		} else if (c == '\n')
			continue;
		printf("%d\n", result);
		fflush(stdout);
	}
	signal(SIGTERM, SIG_IGN);
	kill(0, SIGTERM); /* the children: the process is a group of its own */
	return 0;
}
`
)

// compile runs the C compiler, and skips the test where there is none.
func compile(t *testing.T, source, output string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "source.c")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(source), 0o644)))
	output = filepath.Join(dir, output)
	compiler := testneeds.Tool(t, "cc", "gcc, libc6-dev")
	if err := exec.Command(compiler, "-E", "-include", "sys/sdt.h", "-x", "c",
		os.DevNull).Run(); err != nil {
		testneeds.Missing(t, "needs sys/sdt.h (Debian: systemtap-sdt-dev): %v", err)
	}
	text, err := exec.Command(compiler, append([]string{"-O1", "-o", output, file},
		flags...)...).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", text))
	return output
}

func TestRunFindsDlopenDlcloseAndFork(t *testing.T) {
	testneeds.Root(t)
	library := compile(t, librarySource, "libtraced.so", "-shared", "-fPIC",
		"-DPROVIDER="+tracedProvider())
	loader := compile(t, loaderSource, "loader", "-ldl")
	for _, mode := range runModes {
		t.Run(mode.name, func(t *testing.T) {
			r := startRunning(t, mode, WatcherOptions{})
			defer r.stop()
			needEvents(t, r)

			cmd := exec.Command(loader, library)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			input, err := cmd.StdinPipe()
			qt.Assert(t, qt.IsNil(err))
			pipe, err := cmd.StdoutPipe()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(cmd.Start()))
			output := bufio.NewScanner(pipe)
			do := func(command string) int {
				_, err := input.Write([]byte(command))
				qt.Assert(t, qt.IsNil(err))
				qt.Assert(t, qt.IsTrue(output.Scan()))
				result, err := strconv.Atoi(output.Text())
				qt.Assert(t, qt.IsNil(err))
				return result
			}
			pid := cmd.Process.Pid
			qt.Assert(t, qt.Equals(do("l"), 0))
			r.await(pid, true)
			child := do("f")
			r.await(child, true)

			qt.Assert(t, qt.Equals(do("u"), 0))
			if mode.events { // which do not tell of unmapping
				qt.Assert(t, qt.IsNil(r.Sync(t.Context(), 0)))
			}
			r.await(pid, false)
			qt.Assert(t, qt.Equals(do("l"), 0))
			r.await(pid, true)

			input.Close()
			qt.Assert(t, qt.IsNil(cmd.Wait()))
			r.await(pid, false)
			r.await(child, false)
		})
	}
}
