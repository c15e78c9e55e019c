// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf/link"

	"github.com/gousdt/gousdt/elfnote"
)

// closersAtATime bounds how many kernel links are closed at a time. Closing one
// mostly waits for all processors to pass a quiet state, so many can wait
// together; each takes a thread while it does.
const closersAtATime = 128

// A Link is one program attached to all sites of a Selection, until Close. Keep
// a reference to it, or to the Manager that made it: without any, the garbage
// collector detaches it. The kernel detaches it at the latest when this process
// ends.
type Link struct {
	mode       Mode
	target     string
	pid        int
	sites      siteTable
	broken     []*elfnote.NoteError
	unfit      []*SiteError
	unfitCount int

	kernel  []io.Closer // one uprobe_multi link, or a perf event per site
	release func()      // gives back what belongs to the link, once nothing can hit it any more

	closing atomic.Bool   // somebody is closing, or has closed
	closed  chan struct{} // closed when that is done
	err     error         // valid then
}

// Mode returns how the link is attached.
func (l *Link) Mode() Mode { return l.mode }

// Target returns the file that is attached, as it was named.
func (l *Link) Target() string { return l.target }

// PID returns the process that the link is restricted to, 0 for every process.
func (l *Link) PID() int { return l.pid }

// Len returns the number of sites that are attached.
func (l *Link) Len() int { return len(l.sites.rows) }

// Site returns the site with an index, from 0 to Len()-1, in the order of the
// file's notes.
func (l *Link) Site(i int) Site { return l.sites.site(i) }

// Sites returns all sites that are attached, in the order of the file's notes.
// It makes the slice, 120 bytes for each.
func (l *Link) Sites() []Site { return l.sites.all() }

// KernelLinks returns what the kernel knows the attachment by, to ask for its
// ID and the like: one uprobe_multi link, or a perf event for each site. Close
// the Link, not these.
func (l *Link) KernelLinks() []link.Link {
	links := make([]link.Link, 0, len(l.kernel))
	for _, c := range l.kernel {
		if lnk, ok := c.(link.Link); ok {
			links = append(links, lnk)
		}
	}
	return links
}

// Malformed returns the notes of the attached probes that are damaged, the
// first elfnote.MaxMalformed of them: these places of the program are not
// attached.
func (l *Link) Malformed() []*elfnote.NoteError { return l.broken }

// Skipped returns the sites that cannot be attached, where the probes were
// chosen by a function or pattern, the first MaxSkipped of them: these places
// of the program are not attached. See Selection.Skipped.
func (l *Link) Skipped() []*SiteError { return l.unfit }

// SkippedCount returns how many there are of them altogether.
func (l *Link) SkippedCount() int { return l.unfitCount }

// An UnavailableArgument is an argument that a program cannot read at one of
// the sites of a link; there it reads as an error.
type UnavailableArgument struct {
	Site  Site
	Index int // from 0: Site.Args[Index].Err says why
}

// Unavailable returns the arguments that cannot be fetched. Those from the 13th
// on, which bpf/usdt.bpf.h does not read either, are not among them.
func (l *Link) Unavailable() []UnavailableArgument {
	var all []UnavailableArgument
	for i := range l.sites.rows {
		for n, arg := range l.sites.lists[l.sites.rows[i].list].args {
			if arg.Err != nil {
				all = append(all, UnavailableArgument{Site: l.Site(i), Index: n})
			}
		}
	}
	return all
}

// Close detaches the program. When it returns the program runs no more for this
// link, and the semaphores are as they were. It waits for the kernel, some 10
// to 200 ms for each uprobe_multi link or perf event: close several links by
// CloseAll or Manager.Close, which wait for all at a time. It is safe to call
// it again.
func (l *Link) Close() error { return CloseAll(l) }

// CloseAll closes links, waiting for the kernel for all of them at a time. Nil
// links are skipped.
func CloseAll(links ...*Link) error {
	var mine, others []*Link
	for _, l := range links {
		switch {
		case l == nil:
		case l.closing.CompareAndSwap(false, true):
			mine = append(mine, l)
		default:
			others = append(others, l)
		}
	}

	var wait sync.WaitGroup
	room := make(chan struct{}, closersAtATime)
	for _, l := range mine {
		errs := make([]error, len(l.kernel))
		var left sync.WaitGroup
		for i, c := range l.kernel {
			room <- struct{}{}
			left.Add(1)
			wait.Go(func() {
				errs[i] = c.Close()
				<-room
				left.Done()
			})
		}
		wait.Go(func() {
			left.Wait()
			l.err = errors.Join(errs...)
			if l.release != nil {
				l.release()
			}
			close(l.closed)
		})
	}
	wait.Wait()

	errs := make([]error, 0, len(links))
	for _, l := range append(mine, others...) {
		<-l.closed
		errs = append(errs, l.err)
	}
	return errors.Join(errs...)
}

// closeTogether closes what was attached by an Attach that failed.
func closeTogether(closers []io.Closer) error {
	l := &Link{kernel: closers, closed: make(chan struct{})}
	return l.Close()
}
