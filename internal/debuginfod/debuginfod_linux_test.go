// SPDX-License-Identifier: BSD-2-Clause

package debuginfod

import (
	"compress/gzip"
	"context"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// strippedProgram makes a program without symbols, and its debug file in
// another folder.
func strippedProgram(t *testing.T) (program, debug, buildID string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "program")
	debug = filepath.Join(t.TempDir(), "program.debug")
	for _, command := range [][]string{
		{"cp", testprog.Path(t, "target-pie"), program},
		{"objcopy", "--only-keep-debug", program, debug},
		{"strip", program},
	} {
		out, err := exec.Command(testneeds.Tool(t, command[0], "binutils"), command[1:]...).CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%v: %s", command, out))
	}
	file, err := elffile.Open(program)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	buildID, err = file.BuildID()
	qt.Assert(t, qt.IsNil(err))
	return program, debug, buildID
}

func newDebuginfod(t *testing.T, servers string) *Client {
	t.Helper()
	d, err := New(servers, nil)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(d.Close)
	return d
}

// What servers answer is untrusted.
func TestDebuginfodRefuses(t *testing.T) {
	_, debug, buildID := strippedProgram(t)
	other := strings.Repeat("ab", 20)
	asked := make(chan string, 100)
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		switch id := strings.Split(r.URL.Path, "/")[2]; id {
		case buildID, other:
			http.ServeFile(w, r, debug)
		case "aaaa":
			fmt.Fprint(w, "no ELF file")
		case "bbbb":
			w.Header().Set("Content-Length", "2147483648")
		case "cccc":
			w.WriteHeader(http.StatusBadGateway)
		case "dddd":
			<-hang
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	defer close(hang)
	cache := t.TempDir()
	t.Setenv("DEBUGINFOD_CACHE_PATH", cache)
	d := newDebuginfod(t, server.URL+"/")
	for id, text := range map[string]string{
		other: ".*belongs to another build.*", "aaaa": ".*no debug file: .*not an ELF file.*",
		"bbbb": ".*2147483648 bytes: more than.*", "cccc": ".*502 Bad Gateway.*",
		"../../etc": `build ID "../../etc": not 4 to 128 hexadecimal digits`, "": "build ID.*",
	} {
		_, err := d.Fetch(t.Context(), id)
		qt.Check(t, qt.ErrorMatches(err, "(?s)"+text))
	}
	qt.Check(t, qt.Equals(d.Counts().Failed, 6))

	// That a server has nothing is remembered, also by another client.
	for range 2 {
		_, err := newDebuginfod(t, server.URL).Fetch(t.Context(), "eeee")
		qt.Check(t, qt.ErrorIs(err, fs.ErrNotExist))
	}
	// A server that does not answer keeps nobody waiting.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := d.Fetch(ctx, "dddd")
	qt.Check(t, qt.ErrorIs(err, context.DeadlineExceeded))
	qt.Check(t, qt.Equals(d.Counts().Waiting, 1))
	path, err := d.Fetch(t.Context(), buildID) // while that one waits
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(path, filepath.Join(cache, buildID, "debuginfo")))
	d.Close()
	_, err = d.Fetch(t.Context(), "ffff") // which nobody waits for
	qt.Check(t, qt.ErrorMatches(err, ".*closed"))

	for _, servers := range []string{"file:///etc", "nothing", "ftp://host"} {
		_, err := New(servers, nil)
		qt.Check(t, qt.ErrorMatches(err, "debuginfod server .*: not a URL.*"))
	}
	t.Setenv("DEBUGINFOD_URLS", "")
	_, err = New("", nil)
	qt.Check(t, qt.ErrorMatches(err, "no debuginfod servers .*"))
	asks := 0
	for range len(asked) { // "dddd" may yet come
		if strings.Contains(<-asked, "eeee") {
			asks++
		}
	}
	qt.Check(t, qt.Equals(asks, 1))
	leftOver, err := filepath.Glob(filepath.Join(cache, "*", "debuginfo.*"))
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(leftOver, 0))
}

// A server's answers are huge, endless, slow, compressed, redirected, of
// another build or no file. None costs more than one file may, nobody waits for
// it, and the files of another server come.
func TestHostileDebuginfod(t *testing.T) {
	_, debug, buildID := strippedProgram(t)
	ended := make(chan struct{})
	answer := func(w http.ResponseWriter, chunk []byte, pause time.Duration) {
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-ended:
				return
			case <-time.After(pause):
			}
		}
	}
	insecure := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, debug)
	}))
	defer insecure.Close()
	var slow atomic.Int32
	var hostile *httptest.Server
	hostile = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch id := strings.Split(r.URL.Path, "/")[2]; id {
		case "a0a0":
			w.Header().Set("Content-Length", fmt.Sprint(int64(1)<<40))
		case "a1a1":
			answer(w, make([]byte, 1<<20), 0)
		case "a2a2", "a3a3":
			slow.Add(1)
			answer(w, []byte{0x7f}, 100*time.Millisecond)
		case "a4a4":
			http.Redirect(w, r, hostile.URL+r.URL.Path, http.StatusFound)
		case "a5a5":
			w.Header().Set("Content-Encoding", "gzip")
			bomb := gzip.NewWriter(w)
			for range 512 {
				_, _ = bomb.Write(make([]byte, 1<<20))
			}
			bomb.Close()
		case "a6a6":
			http.ServeFile(w, r, debug)
		case "a7a7":
			fmt.Fprint(w, strings.Repeat("no file", 1<<20))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer hostile.Close()
	defer close(ended)
	cache := t.TempDir()
	t.Setenv("DEBUGINFOD_CACHE_PATH", cache)
	costs := testprog.StartCosts(t)
	began := time.Now()
	d := newDebuginfod(t, hostile.URL+" "+insecure.URL)
	wanted := []string{"a0a0", "a4a4", "a5a5", "a6a6", "a7a7"}
	if testprog.IsComplete() {
		wanted = append(wanted, "a1a1") // which writes a gigabyte
	}
	for _, id := range wanted {
		_, err := d.Fetch(t.Context(), id)
		qt.Check(t, qt.IsNotNil(err), qt.Commentf(id))
	}
	qt.Check(t, qt.Equals(d.Counts().Failed, len(wanted)))
	path, err := d.Fetch(t.Context(), buildID)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(path, filepath.Join(cache, buildID, "debuginfo")))
	late := time.Since(began)

	// Both goroutines that fetch wait now. Neither Find nor Close does.
	for _, id := range []string{"a2a2", "a3a3", "a8a8"} {
		if id == "a8a8" {
			testneeds.Await(t, 5*time.Second, "the slow answers",
				func() bool { return slow.Load() == 2 })
		}
		began := time.Now()
		_, done := d.Find("", id)
		qt.Check(t, qt.IsFalse(done))
		qt.Check(t, qt.IsTrue(time.Since(began) < testprog.InTime(100*time.Millisecond)))
	}
	qt.Check(t, qt.Equals(d.Counts().Waiting, 3))
	d.Close()
	_, err = d.Fetch(t.Context(), "a2a2")
	qt.Check(t, qt.ErrorMatches(err, ".*closed"))
	testneeds.Await(t, 5*time.Second, "the end of all fetches that have begun",
		func() bool { return d.Counts().Waiting <= 1 })
	entries, err := filepath.Glob(filepath.Join(cache, "a*", "debuginfo"))
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(entries, 0))
	costs.Report(6, fmt.Sprintf("%d answers of a debuginfod server without end, measure or truth",
		len(wanted)+2), "512 MB on the disk for 0.5 MB; slow files keep others from coming",
		"refused; a file of another server has come", late)
}

// A user makes up build IDs without end, and asks for another user's before
// that one does. The server takes its time for each. The other user's file
// comes at once all the same.
func TestHostileUserWithMadeUpBuildIDs(t *testing.T) {
	_, debug, buildID := strippedProgram(t)
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, buildID) {
			http.ServeFile(w, r, debug)
			return
		}
		select {
		case <-ended:
		case <-time.After(time.Second):
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	defer close(ended)
	t.Setenv("DEBUGINFOD_CACHE_PATH", t.TempDir())
	d := newDebuginfod(t, server.URL)
	costs := testprog.StartCosts(t)
	const asked = 1170
	for n := range asked {
		d.Find("hostile", fmt.Sprintf("%040x", n))
		if n == asked/2 {
			d.Find("hostile", buildID)
		}
	}
	qt.Check(t, qt.Equals(d.Counts().Failed, asked+1-1024), qt.Commentf("too many of one user"))
	began := time.Now()
	d.Find("other", buildID)
	testneeds.Await(t, 5*time.Second, "the other user's file",
		func() bool { return d.Counts().Fetched == 1 })
	late := time.Since(began)
	qt.Check(t, qt.IsTrue(late < testprog.InTime(time.Second)), qt.Commentf("after %v", late))
	costs.Report(6, fmt.Sprintf("a user makes up %d build IDs for --debuginfod", asked),
		"others' are never asked for", "1,024 are asked for; another user's file has come", late)
}

// What comes from servers has a limit. An owner gets half of what others leave.
func TestDebuginfodSharesWhatIsFetched(t *testing.T) {
	t.Setenv("DEBUGINFOD_CACHE_PATH", t.TempDir())
	d := newDebuginfod(t, "http://127.0.0.1:1")
	left := int64(maxBytes)
	for range 3 {
		owner := new(fetchOwner)
		left /= 2
		qt.Check(t, qt.IsNil(d.take(owner, left)))
		qt.Check(t, qt.ErrorMatches(d.take(owner, 1), "more than a container or user may have .*"))
		left--
	}
}

// Of too many builds, the owner with the most loses one.
func TestDebuginfodForgetsBuildsOfTheOwnerWithTheMost(t *testing.T) {
	t.Setenv("DEBUGINFOD_CACHE_PATH", t.TempDir())
	d := newDebuginfod(t, "http://127.0.0.1:1")
	d.fetching = fetchers // none begins
	d.Find("small", "abcd")
	for n := range maxFetched + 10 {
		d.Find(fmt.Sprint(n/maxOfOwner), fmt.Sprintf("%040x", n))
	}
	qt.Check(t, qt.HasLen(d.known, maxFetched))
	qt.Check(t, qt.IsNotNil(d.known["abcd"]))
	qt.Check(t, qt.Equals(d.Counts().Waiting, maxFetched))
	qt.Check(t, qt.ErrorMatches(d.Counts().Err, "not asked for: .*"))
}

// What is in the cache and is no debug file of the build is replaced. What is
// counted as fetched has come.
func TestDebuginfodReplacesWhatIsNoDebugFile(t *testing.T) {
	_, debug, buildID := strippedProgram(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, debug)
	}))
	defer server.Close()
	cache := t.TempDir()
	t.Setenv("DEBUGINFOD_CACHE_PATH", cache)
	path := filepath.Join(cache, buildID, "debuginfo")
	qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(path), 0o755)))
	qt.Assert(t, qt.IsNil(os.WriteFile(path, nil, 0o644)))
	qt.Assert(t, qt.IsNil(os.Truncate(path, 1<<39)))
	info, err := os.Stat(debug)
	qt.Assert(t, qt.IsNil(err))
	for _, want := range []Counts{
		{Fetched: 1, Bytes: uint64(info.Size())}, {Cached: 1},
	} {
		d := newDebuginfod(t, server.URL)
		got, err := d.Fetch(t.Context(), buildID)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(got, path))
		qt.Check(t, qt.DeepEquals(d.Counts(), want))
	}
}

// A server that is asked by https is not left for another one.
func TestDebuginfodIsNotRedirectedToPlainHTTP(t *testing.T) {
	asked := false
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL+r.URL.Path, http.StatusFound)
	}))
	defer secure.Close()
	certificate := filepath.Join(t.TempDir(), "certificate.pem")
	qt.Assert(t, qt.IsNil(os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600)))
	t.Setenv("SSL_CERT_FILE", certificate)
	t.Setenv("DEBUGINFOD_CACHE_PATH", t.TempDir())
	_, err := newDebuginfod(t, secure.URL).Fetch(t.Context(), "abab")
	qt.Check(t, qt.ErrorMatches(err, "(?s).*redirected to.*"))
	qt.Check(t, qt.IsFalse(asked))
}
