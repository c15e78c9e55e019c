// SPDX-License-Identifier: BSD-2-Clause

// Package debuginfod fetches separate debug files from debuginfod servers. It
// is a package of its own because net/http takes a millisecond and 4 MB of each
// program that imports it.
package debuginfod

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

	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/elffile"
)

// Client fetches separate debug files from debuginfod servers, by build ID:
// https://sourceware.org/elfutils/Debuginfod.html. That tells the servers which
// builds run here. Fetched files are kept where debuginfod's own clients keep
// them, and where this module looks for installed debug files. Its methods may
// be called by several goroutines at once.
type Client struct {
	servers []string
	cache   string
	client  *http.Client
	report  func(format string, args ...any)

	open context.Context // until Close
	stop context.CancelCauseFunc

	mutex    sync.Mutex
	known    map[string]*fetched // by build ID
	owners   map[string]*fetchOwner
	fetching int   // fetches in progress
	room     int64 // bytes that may still come, see maxBytes
	counts   Counts
}

// fetchOwner is what is fetched for an owner.
type fetchOwner struct {
	known    int        // build IDs that are remembered for it
	waiting  []*fetched // in the order in which they were asked for
	fetching int        // fetches in progress
	bytes    int64      // that have come
	took     time.Duration
}

// Counts are what a [Client] has done and does.
type Counts struct {
	Waiting int    // debug files that are still to come
	Fetched int    // debug files, from servers
	Bytes   uint64 // of these files
	Cached  int    // debug files that were in the cache
	Missing int    // build IDs of which no server has a debug file
	Failed  int    // build IDs of which no server has given a usable answer, or that were too many
	Err     error  // why the last one of them failed
}

// fetched is the result for a build ID.
type fetched struct {
	id    string
	owner string        // who asked for it
	done  chan struct{} // closed when the rest is known
	path  string
	size  int64 // in bytes, 0 if it was in the cache
	err   error
}

// Limits of what servers are asked for and what they answer, which is
// untrusted.
const (
	// maxOfOwner bounds the build IDs that are asked for and remembered for an
	// owner, and maxFetched those of all. If there are more, the owner with the
	// most loses one. A large host has some hundred builds with probes on their
	// stacks.
	maxOfOwner = 1024
	maxFetched = 16 << 10
	// maxBytes bounds what comes from servers in the life of a Client. An
	// owner gets at most half of what others have left.
	maxBytes = 8 << 30
	// maxDebugFile bounds a debug file. That of a browser has 2 GB; those of
	// servers and runtimes have up to 500 MB.
	maxDebugFile = 1 << 30
	// fetchers are how many files come at a time, and ownFetchers how many of
	// these may be for one owner.
	fetchers    = 4
	ownFetchers = 2
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

// New returns a client of servers. They are URLs with the schemes
// http and https, divided by blanks; "" stands for those of the variable
// DEBUGINFOD_URLS. Another goroutine calls report, unless it is nil, with lines
// about the progress of a large file.
//
// It fails if there are no servers, if one is no such URL, or if there is no
// directory for the cache: DEBUGINFOD_CACHE_PATH, XDG_CACHE_HOME or HOME names
// it.
func New(servers string, report func(format string, args ...any)) (*Client, error) {
	d := &Client{
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
		report: report,
		known:  make(map[string]*fetched),
		owners: make(map[string]*fetchOwner),
		room:   maxBytes,
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
	caches := debuginfo.DebuginfodCaches()
	if len(caches) == 0 {
		return nil, errors.New("no directory for debug files (set DEBUGINFOD_CACHE_PATH or HOME)")
	}
	d.cache = caches[0]
	d.open, d.stop = context.WithCancelCause(context.Background())
	return d, nil
}

// Close ends all fetches. Later ones fail.
func (d *Client) Close() { d.stop(errClosed) }

// Counts returns the counts so far.
func (d *Client) Counts() Counts {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.counts
}

// Fetch returns the path of the debug file of a build ID, in lower-case
// hexadecimal, after it has been fetched. It fails with fs.ErrNotExist where no
// server has it.
func (d *Client) Fetch(ctx context.Context, buildID string) (path string, err error) {
	f := d.want("", buildID)
	if err := d.await(ctx, f); err != nil {
		return "", err
	}
	return f.path, f.err
}

// await waits until the result is known. It fails if the context ends before.
func (d *Client) await(ctx context.Context, f *fetched) error {
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.open.Done():
		return errClosed
	}
}

var errClosed = errors.New("the client of debuginfod has been closed")

// Wait returns when no file is still to come, or the context ends.
func (d *Client) Wait(ctx context.Context) {
	d.mutex.Lock()
	coming := slices.Collect(maps.Values(d.known))
	d.mutex.Unlock()
	for _, f := range coming {
		if d.await(ctx, f) != nil {
			return
		}
	}
}

// Find starts fetching the debug file of a build ID and does not wait for it,
// as [stack.Symbolizer].DebugFile must not. If it is done and has no path,
// there will be no file. Owners share the limits and the time: what one of them
// asks for leaves room for the others.
func (d *Client) Find(owner, buildID string) (path string, done bool) {
	f := d.want(owner, buildID)
	select {
	case <-f.done:
		return f.path, true
	default:
		return "", false
	}
}

// want starts fetching the debug file of a build ID for an owner, unless that
// has begun.
func (d *Client) want(owner, buildID string) *fetched {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	mine := d.owners[owner]
	if mine == nil {
		mine = &fetchOwner{}
	}
	if f := d.known[buildID]; f != nil {
		// It comes sooner for an owner that waits for less.
		theirs := d.owners[f.owner]
		if i := slices.Index(theirs.waiting, f); i >= len(mine.waiting) && mine != theirs {
			d.forget(f)
			d.remember(f, owner, mine)
			d.begin()
		}
		return f
	}
	f := &fetched{id: buildID, done: make(chan struct{})}
	id, err := hex.DecodeString(buildID)
	switch {
	case err != nil || len(id) < 2 || len(id) > 64 || buildID != strings.ToLower(buildID):
		f.err = fmt.Errorf("build ID %.40q: not 4 to 128 hexadecimal digits", buildID)
	case mine.known >= maxOfOwner:
		f.err = fmt.Errorf("not asked for: it would be more than %d builds of a container or user",
			maxOfOwner)
	case d.open.Err() != nil:
		f.err = errClosed
	default:
		d.makeRoom()
		d.remember(f, owner, mine)
		d.counts.Waiting++
		d.begin()
		return f
	}
	d.finish(f)
	return f
}

// remember notes that an owner waits for a file. The caller holds the mutex, as
// for the following functions.
func (d *Client) remember(f *fetched, owner string, of *fetchOwner) {
	f.owner = owner
	d.known[f.id], d.owners[owner] = f, of
	of.known++
	of.waiting = append(of.waiting, f)
}

// forget forgets a file, and its owner with the last one.
func (d *Client) forget(f *fetched) {
	of := d.owners[f.owner]
	delete(d.known, f.id)
	of.waiting = slices.DeleteFunc(of.waiting, func(other *fetched) bool { return other == f })
	if of.known--; of.known == 0 {
		delete(d.owners, f.owner)
	}
}

// makeRoom forgets a file of the owner with the most if there are maxFetched.
func (d *Client) makeRoom() {
	if len(d.known) < maxFetched {
		return
	}
	most := &fetchOwner{}
	for _, of := range d.owners {
		if of.known > most.known {
			most = of
		}
	}
	for _, f := range d.known {
		if d.owners[f.owner] != most {
			continue
		}
		isWaiting := slices.Contains(most.waiting, f)
		select {
		case <-f.done:
		default:
			if !isWaiting {
				continue // it is being fetched
			}
			f.err = fmt.Errorf("not asked for: there are more than %d builds of all users", maxFetched)
			d.counts.Waiting--
			d.finish(f)
		}
		d.forget(f)
		return
	}
}

// begin begins to fetch as many files as may come at a time. The owner whose
// files have taken the least time comes first.
func (d *Client) begin() {
	for d.fetching < fetchers && d.open.Err() == nil {
		var next *fetchOwner
		for _, of := range d.owners {
			if len(of.waiting) > 0 && of.fetching < ownFetchers &&
				(next == nil || of.fetching < next.fetching ||
					of.fetching == next.fetching && of.took < next.took) {
				next = of
			}
		}
		if next == nil {
			return
		}
		f := next.waiting[0]
		next.waiting = next.waiting[1:]
		next.fetching++
		d.fetching++
		go d.run(f, next)
	}
}

func (d *Client) run(f *fetched, of *fetchOwner) {
	began := time.Now()
	path, size, err := d.fetch(f.id, of)
	d.mutex.Lock()
	defer d.mutex.Unlock()
	of.took += time.Since(began)
	of.fetching--
	d.fetching--
	f.path, f.size, f.err = path, size, err
	d.counts.Waiting--
	d.finish(f)
	d.begin()
}

func (d *Client) finish(f *fetched) {
	switch {
	case f.err == nil && f.size == 0:
		d.counts.Cached++
	case f.err == nil:
		d.counts.Fetched++
		d.counts.Bytes += uint64(f.size)
	case errors.Is(f.err, fs.ErrNotExist):
		d.counts.Missing++
	default:
		d.counts.Failed++
		d.counts.Err = f.err
	}
	close(f.done)
}

// take notes that bytes of a file have come for an owner. It fails if there
// were more than it may have. It takes the mutex.
func (d *Client) take(of *fetchOwner, bytes int64) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.room -= bytes
	of.bytes += bytes
	if of.bytes > (d.room+of.bytes)/2 {
		return fmt.Errorf("more than a container or user may have of the %d MB that are fetched altogether",
			int64(maxBytes)>>20)
	}
	return nil
}

// fetch takes a file from the first server that has it, if it is not in the
// cache. What is in the cache and is not that file is replaced.
func (d *Client) fetch(buildID string, of *fetchOwner) (path string, size int64, err error) {
	path = filepath.Join(d.cache, buildID, "debuginfo")
	missing := fmt.Errorf("no server has the debug file of build %s: %w", buildID, fs.ErrNotExist)
	if info, err := os.Stat(path); err == nil {
		if info.Size() == 0 && time.Since(info.ModTime()) < missingFor {
			return "", 0, missing
		}
		if file, err := elffile.Open(path); err == nil {
			err := isOfBuild(file, buildID)
			file.Close()
			if err == nil {
				return path, 0, nil
			}
		}
		_ = os.Remove(path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", 0, err
	}
	var failed error
	for _, server := range d.servers {
		size, err := d.fetchFrom(server, buildID, path, of)
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
func (d *Client) fetchFrom(
	server, buildID, path string, of *fetchOwner,
) (size int64, err error) {
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
		if err := d.take(of, n); err != nil {
			return 0, err
		}
		if size%reportEvery == 0 && err == nil && d.report != nil {
			d.report("debuginfod: %d MB so far of the debug file of build %.8s", size>>20, buildID)
		}
	}
	if !errors.Is(err, io.EOF) {
		return 0, cmp.Or(context.Cause(ctx), err)
	}
	debug, err := elffile.New(file)
	if err == nil {
		err = isOfBuild(debug, buildID)
	}
	if err != nil {
		return 0, fmt.Errorf("what came is no debug file: %w", err)
	}
	return size, errors.Join(file.Close(), os.Rename(file.Name(), path))
}

// isOfBuild returns an error unless a file has a build ID.
func isOfBuild(file *elffile.File, buildID string) error {
	id, err := file.BuildID()
	if err == nil && id != buildID {
		err = fmt.Errorf("%w: build ID %s", debuginfo.ErrOtherBuildID, id)
	}
	return err
}
