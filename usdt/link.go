// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gousdt/gousdt/proc"
)

// closersAtATime bounds how many kernel links are closed at the same time.
// Closing one mostly waits until all processors have passed a quiet state, so
// many can wait together. Each takes a thread until then.
const closersAtATime = 128

// eventClosersAtATime is the same for perf events. The kernel closes them one
// after the other, and an attachment has to wait for those that are closing.
const eventClosersAtATime = 4

// A Link is one program attached to all sites of a [Selection], until Close.
//
// Keep a reference to the Link, or to the Manager that made it: the garbage
// collector detaches what nothing refers to. The kernel detaches it at the
// latest when this process ends.
type Link struct {
	mode    Mode
	sel     *Selection    // closed
	program *ebpf.Program // as it was given
	process proc.Process  // zero if it is every process

	generic string // why the sites run the program itself, "" if they run one made for them

	kernel  []io.Closer // one uprobe_multi link, or perf events
	release func()      // gives back what belongs to the link, once nothing can hit it any more

	closeOnce sync.Once
	err       error // of closing
}

func newLink(mode Mode, sel *Selection, prog *ebpf.Program) *Link {
	describing := *sel
	describing.opened, describing.borrowed = &opened{name: sel.opened.name, closed: true}, true
	return &Link{
		mode: mode, sel: &describing, program: prog,
		process: proc.Process{PID: sel.pid},
	}
}

// Program returns the program that was given to be attached.
func (l *Link) Program() *ebpf.Program { return l.program }

// Process returns the process that is attached, or the zero value if that is
// every process. Of a Link that no [Watch] has made only the PID is set.
func (l *Link) Process() proc.Process { return l.process }

// Selection returns the sites that are attached, and those that were skipped.
// It is closed: it describes them, but cannot be attached. In a [Watch] its
// name is the path of the file as the process sees it, or if the Link is for
// every process, as the first process sees it that was found with the file.
func (l *Link) Selection() *Selection { return l.sel }

// Specialised reports whether the sites run a program that was made for them,
// see [ManagerOptions].Specialise. If not, reason says why.
func (l *Link) Specialised() (specialised bool, reason string) { return l.generic == "", l.generic }

// String returns the file, the process, the number of sites and the mode, as in
// "/usr/bin/python3 in process 7: 3 sites, multi+cookie". Paths are arbitrary
// bytes: escape them before they reach a terminal.
func (l *Link) String() string { return fmt.Sprintf("%s, %s", l.sel, l.mode) }

// PerfEvents returns how many perf events the program is attached by, 0 if it
// is by uprobe_multi links. The kernel takes about 0.1 s to close each, one
// after the other.
func (l *Link) PerfEvents() int {
	if l.mode == ModeMulti {
		return 0
	}
	return len(l.kernel)
}

// Links returns the links of the kernel, for code that needs the interface of
// cilium/ebpf, and to pin them: a pinned link goes on when this process has
// ended without closing the Link, and the program reads arguments as before.
// Close unpins it. Each belongs to the Link, so close that.
//
// The error wraps [errors.ErrUnsupported] where the program is attached by perf
// events, which the kernel does not pin.
func (l *Link) Links() ([]link.Link, error) {
	if l.mode != ModeMulti {
		return nil, fmt.Errorf("%s: perf events have no link to pin: %w", l, errors.ErrUnsupported)
	}
	var links []link.Link
	for _, c := range l.kernel {
		links = append(links, c.(link.Link))
	}
	return links, nil
}

// Close detaches the program. When it returns, the program does not run for
// this link any more, and the semaphores have been counted down. It waits for
// the kernel, 10 to 200 ms for each uprobe_multi link or perf event. Several
// links that are closed by goroutines of their own, or by [Manager.Close], are
// waited for together. It is safe to call Close again.
func (l *Link) Close() error {
	l.closeOnce.Do(func() {
		room := linkClosers
		if l.mode != ModeMulti {
			room = eventClosers
		}
		// In the order in which they were attached. There are several only for
		// perf events, which the kernel closes one after the other, and for
		// links to over a million sites.
		for _, c := range l.kernel {
			room <- struct{}{}
			if pinned, ok := c.(link.Link); ok {
				// Or it would go on, and read arguments by specs that are
				// given to others. Before Linux 5.15 a perf event cannot be
				// pinned.
				if err := pinned.Unpin(); !errors.Is(err, ebpf.ErrNotSupported) {
					l.err = errors.Join(l.err, err)
				}
			}
			l.err = errors.Join(l.err, c.Close())
			<-room
		}
		if l.release != nil {
			l.release()
		}
	})
	return l.err
}

// linkClosers and eventClosers have an element for each link, or perf event,
// that this process is closing. They are shared by all Managers, as the kernel
// makes all of them wait for each other.
var (
	linkClosers  = make(chan struct{}, closersAtATime)
	eventClosers = make(chan struct{}, eventClosersAtATime)
)

// closeTogether closes what was attached by an Attach that failed.
func closeTogether(mode Mode, closers []io.Closer) error {
	return (&Link{mode: mode, kernel: closers}).Close()
}
