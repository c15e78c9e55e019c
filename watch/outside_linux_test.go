// SPDX-License-Identifier: BSD-2-Clause

package watch_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// outside builds the program of another module, which requires this one.
func outside(t *testing.T, source string) string {
	t.Helper()
	testneeds.NoGuest(t, "it has no Go")
	tool := testneeds.Tool(t, "go", "golang")
	root, err := filepath.Abs("..")
	qt.Assert(t, qt.IsNil(err))
	dir := t.TempDir()
	text, err := os.ReadFile(source)
	qt.Assert(t, qt.IsNil(err))
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	qt.Assert(t, qt.IsNil(err))
	for name, text := range map[string]string{
		"main.go": string(text), "go.sum": string(sums),
		"go.mod": "module example.org/agent\n\ngo 1.25\n\n" +
			"require github.com/gousdt/gousdt v0.0.0\n\nreplace github.com/gousdt/gousdt => " + root + "\n",
	} {
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)))
	}
	built := filepath.Join(dir, "agent")
	cmd := exec.Command(tool, "build", "-mod=mod", "-o", built, ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	output, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", output))
	return built
}

// An agent of another module, in a container with the proc file system of its
// host, attaches to a process of the host, and exports what it does.
func TestOutsideAgentWithTheProcOfItsHost(t *testing.T) {
	testprog.RequireBPF(t)
	agent := outside(t, "testdata/agent/main.go")
	unshare := []string{testneeds.Tool(t, "unshare", "util-linux"), "--pid", "--mount", "--fork",
		"--kill-child"}
	if out, err := exec.Command(unshare[0], append(unshare[1:], "true")...).CombinedOutput(); err != nil {
		testneeds.Missing(t, "needs to make PID namespaces: %v: %s", err, out)
	}
	// No other process has the name.
	name := fmt.Sprintf("outside-%d", os.Getpid())
	program, err := os.ReadFile(testprog.Path(t, "target-pie"))
	qt.Assert(t, qt.IsNil(err))
	path := filepath.Join(t.TempDir(), name)
	qt.Assert(t, qt.IsNil(os.WriteFile(path, program, 0o700)))
	process := testprog.Start(t, path)
	host := t.TempDir()
	cmd := exec.Command(unshare[0], append(unshare[1:], "sh", "-c",
		`mount --rbind /proc "$1" && mount -t proc proc /proc && exec "$2" "$1" "$3"`,
		"sh", host, agent, name)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	stdout, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	defer stdin.Close()
	var printed strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		fmt.Fprintln(&printed, lines.Text())
		if lines.Text() == "ready" {
			process.Fire("three", 5)
			fmt.Fprintln(stdin)
		}
	}
	qt.Check(t, qt.IsNil(cmd.Wait()))
	qt.Check(t, qt.Matches(printed.String(), "attached .*/"+name+": 1 site\n"+
		"kernel events: false\nready\nevent three 3\nexported 5 5\nended: context canceled\n"))
}
