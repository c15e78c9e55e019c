// SPDX-License-Identifier: BSD-2-Clause

package stack_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"

	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/debuginfod"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/stack"
)

// Debian's own server has the debug file of a program that runs.
func TestDebuginfod(t *testing.T) {
	program, debug := filepath.Join(t.TempDir(), "program"), filepath.Join(t.TempDir(), "program.debug")
	for _, command := range [][]string{
		{"cp", testprog.Path(t, "target-pie"), program},
		{"objcopy", "--only-keep-debug", program, debug},
		{"strip", program},
	} {
		out, err := exec.Command(testneeds.Tool(t, command[0], "binutils"), command[1:]...).CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%v: %s", command, out))
	}
	file, err := debuginfo.Open(debug)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	buildID, err := file.BuildID()
	qt.Assert(t, qt.IsNil(err))
	main, err := file.Symbol("main")
	qt.Assert(t, qt.IsNil(err))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	qt.Assert(t, qt.IsNil(err))
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	server := exec.Command(testneeds.Tool(t, "debuginfod", "debuginfod"), "-F", filepath.Dir(debug),
		"-p", fmt.Sprint(port), "-d", ":memory:")
	qt.Assert(t, qt.IsNil(server.Start()))
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	address := fmt.Sprintf("http://127.0.0.1:%d", port)
	testneeds.Await(t, 20*time.Second, "the server", func() bool {
		response, err := http.Get(address + "/buildid/" + buildID + "/debuginfo")
		if err == nil {
			response.Body.Close()
		}
		return err == nil && response.StatusCode == http.StatusOK
	})
	t.Setenv("DEBUGINFOD_CACHE_PATH", t.TempDir())
	const nobody = "http://127.0.0.1:1"
	d, err := debuginfod.New(nobody+" "+address, nil)
	qt.Assert(t, qt.IsNil(err))
	defer d.Close()

	process := testprog.StartCommand(t, exec.Command(program))
	s := stack.NewSymbolizer("")
	s.DebugFile = d.Find
	defer s.Close()
	p := stack.NewProfile(s, profile.ValueType{Type: "hits", Unit: "count"})
	inMain := runtimeAddress(t, process.PID, program, main.Value)
	s.Remember(process.PID)
	p.Add(t.Context(), process.PID, []uint64{inMain}, []int64{1}, nil)
	d.Wait(t.Context())
	qt.Check(t, qt.Equals(d.Counts().Fetched, 1), qt.Commentf("%v", d.Counts().Err))
	qt.Check(t, qt.Equals(s.Frames(t.Context(), process.PID, []uint64{inMain})[0].Function, "main"))
	var folded strings.Builder
	qt.Assert(t, qt.IsNil(p.WriteFolded(t.Context(), &folded)))
	qt.Check(t, qt.Equals(folded.String(), "main 1\n"))
	qt.Check(t, qt.Equals(s.Counts().NoFunction, 0))

	// Another client finds it where debuginfod's own keep it.
	find := exec.Command(testneeds.Tool(t, "debuginfod-find", "debuginfod"), "debuginfo", buildID)
	find.Env = append(os.Environ(), "DEBUGINFOD_URLS="+nobody)
	out, err := find.Output()
	qt.Assert(t, qt.IsNil(err))
	other, err := debuginfod.New(nobody, nil)
	qt.Assert(t, qt.IsNil(err))
	defer other.Close()
	path, err := other.Fetch(t.Context(), buildID)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(strings.TrimSpace(string(out)), path))
}
