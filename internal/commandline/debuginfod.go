// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gousdt/gousdt/internal/elffile"
)

// Debuginfod fetches separate debug files from debuginfod servers, by build ID:
// https://sourceware.org/elfutils/Debuginfod.html. That tells the servers which
// builds run here. Fetched files are kept where debuginfod's own clients keep
// them, and where this module looks for installed debug files. Its methods may
// be called by several goroutines at once.
type Debuginfod struct {
	servers []string
	cache   string
	client  *http.Client
	report  func(format string, args ...any)

	open context.Context // until Close
	stop context.CancelCauseFunc

	fetching chan struct{} // has an element for each fetch in progress

	mutex  sync.Mutex
	known  map[string]*fetched // by build ID
	counts DebuginfodCounts
}

// DebuginfodCounts are what a [Debuginfod] has done and does.
type DebuginfodCounts struct {
	Waiting int    // debug files that are still to come
	Fetched int    // debug files
	Bytes   uint64 // of these files
	Missing int    // build IDs of which no server has a debug file
	Failed  int    // build IDs of which no server has given a usable answer, or that were too many
	Err     error  // why the last one of them failed
}

// fetched is the result for a build ID.
type fetched struct {
	id   string
	done chan struct{} // closed when the rest is known
	path string
	err  error
}

// Limits of what servers are asked for and what they answer, which is
// untrusted.
const (
	// maxFetched bounds the build IDs that are asked for in the life of a
	// Debuginfod, and maxFetching those that wait for others. A large host has
	// some hundred builds with probes on their stacks.
	maxFetched  = 1024
	maxFetching = 256
	// maxDebugFile bounds a debug file. That of a browser has 2 GB; those of
	// servers and runtimes have up to 500 MB.
	maxDebugFile = 1 << 30
	// fetchers are how many files come at a time.
	fetchers = 2
	// fetchTimeout is how long a server may take for its first answer, and for
	// each piece of a file in bytes: debuginfod's own clients give it this time
	// for 100 KB (DEBUGINFOD_TIMEOUT).
	fetchTimeout = 90 * time.Second
	piece        = 64 << 10
	// fetchTime is how long a file may take in all, as a slow server keeps
	// others from being asked for, and maxRedirects how often it may name
	// another place.
	fetchTime    = 30 * time.Minute
	maxRedirects = 3
	// reportEvery is how much of a file comes between two reports.
	reportEvery = 32 << 20
	// missingFor is how long it is believed that no server has a file, as
	// debuginfod's own clients do.
	missingFor = 10 * time.Minute
)

// NewDebuginfod returns a client of servers. They are URLs with the schemes
// http and https, divided by blanks; "" stands for those of the variable
// DEBUGINFOD_URLS. Another goroutine calls report, unless it is nil, with lines
// about the progress of a large file.
//
// It fails if there are no servers, if one is no such URL, or if there is no
// directory for the cache: DEBUGINFOD_CACHE_PATH, XDG_CACHE_HOME or HOME names
// it.
func NewDebuginfod(servers string, report func(format string, args ...any)) (*Debuginfod, error) {
	d := &Debuginfod{
		client: &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: fetchTimeout,
			TLSHandshakeTimeout: fetchTimeout, MaxResponseHeaderBytes: 64 << 10,
			IdleConnTimeout: time.Second,
			// A small compressed answer could become a large one.
			DisableCompression: true,
		}, CheckRedirect: func(to *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects || via[0].URL.Scheme == "https" && to.URL.Scheme != "https" {
				return fmt.Errorf("redirected to %.100q", to.URL)
			}
			return nil
		}},
		report:   report,
		known:    make(map[string]*fetched),
		fetching: make(chan struct{}, fetchers),
	}
	for _, server := range strings.Fields(cmp.Or(servers, os.Getenv("DEBUGINFOD_URLS"))) {
		u, err := url.Parse(server)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("debuginfod server %q: not a URL such as https://debuginfod.debian.net", server)
		}
		d.servers = append(d.servers, strings.TrimRight(server, "/"))
	}
	if len(d.servers) == 0 {
		return nil, errors.New("no debuginfod servers (set DEBUGINFOD_URLS, as in https://debuginfod.debian.net)")
	}
	caches := elffile.DebuginfodCaches()
	if len(caches) == 0 {
		return nil, errors.New("no directory for debug files (set DEBUGINFOD_CACHE_PATH or HOME)")
	}
	d.cache = caches[0]
	d.open, d.stop = context.WithCancelCause(context.Background())
	return d, nil
}

// Close ends all fetches. Later ones fail.
func (d *Debuginfod) Close() { d.stop(errClosed) }

// Counts returns the counts so far.
func (d *Debuginfod) Counts() DebuginfodCounts {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.counts
}

// Fetch returns the path of the debug file of a build ID, in lower-case
// hexadecimal, after it has been fetched. It fails with fs.ErrNotExist where no
// server has it.
func (d *Debuginfod) Fetch(ctx context.Context, buildID string) (path string, err error) {
	f := d.want(buildID)
	select {
	case <-f.done:
		return f.path, f.err
	case <-ctx.Done():
		return "", ctx.Err()
	case <-d.open.Done():
		return "", errClosed
	}
}

var errClosed = errors.New("the client of debuginfod has been closed")

// Wait returns when no file is still to come, or the context ends.
func (d *Debuginfod) Wait(ctx context.Context) {
	d.mutex.Lock()
	coming := slices.Collect(maps.Keys(d.known))
	d.mutex.Unlock()
	for _, buildID := range coming {
		if _, err := d.Fetch(ctx, buildID); ctx.Err() != nil || errors.Is(err, errClosed) {
			return
		}
	}
}

// Find starts fetching the debug file of a build ID and does not wait for it,
// as [stack.Symbolizer].DebugFile must not. If it is done and has no path,
// there will be no file.
func (d *Debuginfod) Find(buildID string) (path string, done bool) {
	f := d.want(buildID)
	select {
	case <-f.done:
		return f.path, true
	default:
		return "", false
	}
}

// want starts fetching the debug file of a build ID, unless that has begun.
func (d *Debuginfod) want(buildID string) *fetched {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if f := d.known[buildID]; f != nil {
		return f
	}
	f := &fetched{id: buildID, done: make(chan struct{})}
	id, err := hex.DecodeString(buildID)
	switch {
	case err != nil || len(id) < 2 || len(id) > 64 || buildID != strings.ToLower(buildID):
		f.err = fmt.Errorf("build ID %.40q: not 4 to 128 hexadecimal digits", buildID)
	case len(d.known) >= maxFetched:
		f.err = fmt.Errorf("not asked for: it would be more than %d builds", maxFetched)
	case d.counts.Waiting >= maxFetching:
		f.err = fmt.Errorf("not asked for: %d others are waited for", maxFetching)
	default:
		d.counts.Waiting++
		d.known[buildID] = f
		go d.run(f)
		return f
	}
	d.finish(f, 0)
	return f
}

// finish counts the result for a build ID. The caller holds the mutex.
func (d *Debuginfod) finish(f *fetched, size int64) {
	switch {
	case f.err == nil:
		d.counts.Fetched++
		d.counts.Bytes += uint64(size)
	case errors.Is(f.err, fs.ErrNotExist):
		d.counts.Missing++
	default:
		d.counts.Failed++
		d.counts.Err = f.err
	}
	close(f.done)
}

// run fetches a debug file when it is its turn.
func (d *Debuginfod) run(f *fetched) {
	select {
	case <-d.open.Done():
		return
	case d.fetching <- struct{}{}:
		defer func() { <-d.fetching }()
	}
	path, size, err := d.fetch(f.id)
	d.mutex.Lock()
	defer d.mutex.Unlock()
	f.path, f.err = path, err
	d.counts.Waiting--
	d.finish(f, size)
}

// fetch takes a file from the first server that has it.
func (d *Debuginfod) fetch(buildID string) (path string, size int64, err error) {
	path = filepath.Join(d.cache, buildID, "debuginfo")
	missing := fmt.Errorf("no server has the debug file of build %s: %w", buildID, fs.ErrNotExist)
	if info, err := os.Stat(path); err == nil {
		switch {
		case info.Size() > 0:
			return path, info.Size(), nil
		case time.Since(info.ModTime()) < missingFor:
			return "", 0, missing
		}
		_ = os.Remove(path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", 0, err
	}
	var failed error
	for _, server := range d.servers {
		size, err := d.fetchFrom(server, buildID, path)
		if err == nil {
			return path, size, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, fmt.Errorf("%s: build %s: %w", server, buildID, err))
		}
	}
	if failed != nil {
		return "", 0, failed
	}
	if none, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0); err == nil {
		none.Close() // so that nobody asks again soon
	}
	return "", 0, missing
}

// fetchFrom writes what a server has of a build to a path, where it appears
// when it is whole.
func (d *Debuginfod) fetchFrom(server, buildID, path string) (size int64, err error) {
	limited, stop := context.WithTimeoutCause(d.open, fetchTime,
		fmt.Errorf("not complete after %v", fetchTime))
	defer stop()
	ctx, cancel := context.WithCancelCause(limited)
	defer cancel(nil)
	idle := time.AfterFunc(fetchTimeout,
		func() { cancel(fmt.Errorf("less than %d bytes came in %v", piece, fetchTimeout)) })
	defer idle.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		server+"/buildid/"+buildID+"/debuginfo", nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("User-Agent", "gousdt")
	response, err := d.client.Do(request)
	if err != nil {
		return 0, cmp.Or(context.Cause(ctx), err)
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotFound:
		return 0, fs.ErrNotExist
	case response.StatusCode != http.StatusOK:
		return 0, errors.New(response.Status)
	case response.ContentLength > maxDebugFile:
		return 0, fmt.Errorf("%d bytes: more than %d", response.ContentLength, maxDebugFile)
	}
	file, err := os.CreateTemp(filepath.Dir(path), "debuginfo.*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(file.Name()) // unless it was renamed
	defer file.Close()
	for err == nil {
		var n int64
		idle.Reset(fetchTimeout)
		n, err = io.CopyN(file, response.Body, piece)
		if size += n; size > maxDebugFile {
			return 0, fmt.Errorf("more than %d bytes", maxDebugFile)
		}
		if size%reportEvery == 0 && err == nil && d.report != nil {
			d.report("debuginfod: %d MB so far of the debug file of build %.8s", size>>20, buildID)
		}
	}
	if !errors.Is(err, io.EOF) {
		return 0, cmp.Or(context.Cause(ctx), err)
	}
	id := ""
	debug, err := elffile.New(file)
	if err == nil {
		id, err = debug.BuildID()
	}
	if err == nil && id != buildID {
		err = fmt.Errorf("%w: build ID %s", elffile.ErrOtherBuildID, id)
	}
	if err != nil {
		return 0, fmt.Errorf("what came is no debug file: %w", err)
	}
	return size, errors.Join(file.Close(), os.Rename(file.Name(), path))
}
