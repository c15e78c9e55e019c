// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

func TestOutputFile(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	path := filepath.Join(t.TempDir(), "events")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(strings.Repeat("what was there before\n",
		1000)), 0o644)))
	r := watching(t, "-o", path, "--max-events", "1", p.path, "gousdt_test:three")
	p.Fire("three", 1)
	result := r.wait()
	result.ok()
	qt.Check(t, qt.Equals(result.stdout, ""))
	content, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Matches(string(content), `TIME .*\n.* gousdt_test:three .*\n`))
}

func TestQuiet(t *testing.T) {
	testprog.Parallel(t)
	path := filepath.Join(t.TempDir(), "events")
	r := start(t, "-qo", path, "--duration", "0.1", copyOf(t, "target-pie"), "gousdt_test:three",
		"gousdt_test:nonesuch").wait()
	r.ok()
	qt.Check(t, qt.Equals(r.stderr,
		"usdttrace: no probe matches gousdt_test:nonesuch (nearest: gousdt_test:none)\n"))
}

// A process may map as many files with odd probes as it likes.
func TestMessagesAreBounded(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	library, err := os.ReadFile(testprog.Path(t, "libtarget.so"))
	qt.Assert(t, qt.IsNil(err))
	dir := t.TempDir()
	for i := range commandline.MaxOfKind + 3 {
		path := filepath.Join(dir, fmt.Sprintf("lib%d.so", i))
		testprog.WriteProgram(t, path, library)
		p.Do("load " + path)
	}
	r := watching(t, "-p", decimal(p.PID), "*:three", "*:no_nop").interrupt()
	r.ok()
	qt.Check(t, qt.Equals(strings.Count(r.stderr, "skipped probe gousdt_broken:no_nop"),
		commandline.MaxOfKind))
	qt.Check(t, qt.StringContains(r.stderr, "usdttrace: skipped sites: 4 more\n"))
}

func TestProcessesThatAreNotSeenAreToldOf(t *testing.T) {
	for behaviour, test := range map[string]struct {
		variable, want string
	}{
		"of other PID namespaces": {ownProcVariable,
			"processes outside of this PID namespace, such as that of a container, are not seen"},
		"for want of kernel events": {"",
			"processes are scanned once in 1s, and what lives shorter is missed"},
	} {
		t.Run(behaviour, func(t *testing.T) {
			r := startPrepared(t, func(cmd *exec.Cmd) {
				cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
				cmd.Env = append(cmd.Env, test.variable+"=1")
			}, "-a", "gousdt_test:three")
			r.await(&r.stderr, test.want)
			r.interrupt()
		})
	}
}

// As usdtlist --debuginfod asks for a debug file.
func TestFetchDebugFile(t *testing.T) {
	testneeds.NoGuest(t, "it asks a server")
	program := testprog.Path(t, "target-pie")
	file, err := elffile.Open(program)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	buildID, err := file.BuildID()
	qt.Assert(t, qt.IsNil(err))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, program)
	}))
	defer server.Close()
	t.Setenv("DEBUGINFOD_URLS", server.URL)
	cache := t.TempDir()
	t.Setenv("DEBUGINFOD_CACHE_PATH", cache)
	r := start(t, commandline.FetchDebugFile, buildID).wait()
	qt.Check(t, qt.DeepEquals(r.ok(), []string{filepath.Join(cache, buildID, "debuginfo")}))
	t.Setenv("DEBUGINFOD_URLS", "")
	r = start(t, commandline.FetchDebugFile, buildID).wait()
	qt.Check(t, qt.Equals(r.status, exitError))
	qt.Check(t, qt.Matches(r.stderr, "usdttrace: --debuginfod: no debuginfod servers .*\n"))
}
