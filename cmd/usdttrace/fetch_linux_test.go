// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

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
