// SPDX-License-Identifier: BSD-2-Clause

package watch

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
)

// An Attacher attaches for a watch made by [Of], as package trace does. A part
// of a file is its probes that match the patterns of this part.
//
// One goroutine at a time calls the methods, which must not call the watch.
type Attacher[A any] interface {
	// AttachPart attaches the sites of a part in one process, or in every
	// process if that is the zero value. found has the process in which the
	// file was found.
	AttachPart(part int, sites *usdt.Selection, found *proc.ProcessFile, process proc.Process) (A, error)
	// Descriptors returns the number of descriptors of an attachment.
	Descriptors(attached A) int
	// Detach detaches all of them, and returns when that is done.
	Detach(attachments []A) error
	// Explain returns the error to report for a part that was not attached.
	Explain(part int, err *Error) error
	// Closed is called once the watch is closed.
	Closed()
}

// Of makes a watch that attaches by other means than a Manager. Each part has
// patterns of its own. What else it does, see [New].
func Of[A any](
	opts *Options, changed func(*Changes[A]), attacher Attacher[A], parts ...[]elfnote.Pattern,
) (*Watch, error) {
	return newWatch(opts, changed, attacher, parts)
}

func newWatch[A any](
	opts *Options, changed func(*Changes[A]), attacher Attacher[A], parts [][]elfnote.Pattern,
) (*Watch, error) {
	if opts == nil {
		opts = &Options{}
	}
	limits := follow.Limits(opts.Limits)
	d := &driver[A]{Attacher: attacher, patterns: parts,
		perProcess: opts.PerProcess || opts.After > 0, fileSites: limits.OfFile(),
		noLease: opts.NoLease, proc: procfs.NewFS(string(opts.Proc)), changed: changed}
	if opts.DebugFiles {
		d.debugFile = debuginfo.Find
	}
	if !slices.ContainsFunc(parts, func(part []elfnote.Pattern) bool { return len(part) == 0 }) {
		d.all = slices.Concat(parts...)
	}
	follower, err := follow.New(d, follow.Options{
		Proc: procwatch.WatcherOptions{FS: d.proc, Filter: opts.Filter, Patient: opts.Patient,
			Handler: procwatch.Report(opts.Mapped), BeforePass: opts.BeforePass},
		Parts:     len(parts),
		NeedsPIDs: d.perProcess,
		Linger:    opts.Linger,
		After:     opts.After,
		Limits:    limits,
	}, d.all...)
	if err != nil {
		return nil, fmt.Errorf("watch: %w: watch without PerProcess and After", err)
	}
	return &Watch{follower: follower, ended: attacher.Closed, closed: make(chan struct{})}, nil
}

// An Error says that a watch could not attach to a file.
type Error struct {
	// ProcessFile has the process that was to be attached. For every process,
	// it is the first one found with the file.
	proc.ProcessFile
	Err     error
	program string // its name, "" if the error is about the file for all programs
}

func (e *Error) Error() string {
	program := ""
	if e.program != "" {
		program = e.program + " "
	}
	return fmt.Sprintf("attaching %sto %s in process %s: %v", program, e.Path, e.Process, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// A driver attaches files where a follow.Follower finds a place for them. A
// part of a file is the probes for one program or session.
type driver[A any] struct {
	Attacher[A]
	patterns   [][]elfnote.Pattern // by part
	all        []elfnote.Pattern   // of all parts together, nil if one wants all probes
	perProcess bool
	debugFile  func(*elfnote.File) (path string, err error) // nil if none is searched for
	fileSites  int
	noLease    bool
	proc       *procfs.FS
	changed    func(*Changes[A])
}

// A watchedFile is a file whose sites have been checked, once for all.
type watchedFile[A any] struct {
	*usdt.Selection
	writes
	driver  *driver[A]
	parts   []*usdt.Selection // which share the file; nil if it has no sites for the part
	weights []int             // of these
	errs    []error           // why none of the sites for a part can be attached
}

func (d *driver[A]) Open(pair *procwatch.ProcessFile) (follow.File[A], error) {
	file := &watchedFile[A]{driver: d}
	sel, err := usdt.Select(usdt.Target{Kept: kept{pair.Kept(), &file.writes}, MaxSites: d.fileSites,
		DebugFile: d.debugFile, NoLease: d.noLease}, d.all...)
	if err != nil {
		return nil, err
	}
	if needed := weight(sel); d.fileSites > 0 && needed > d.fileSites {
		sel.Close()
		return nil, fmt.Errorf("%s: %w", pair.Path, elffile.TooLarge(&usdt.LimitError{
			Limit: "sites (one with a semaphore counts as 8, " +
				"one with long texts or many arguments as several)", Option: fileSitesOption,
			Capacity: d.fileSites, Needed: needed}))
	}
	file.Selection = sel
	for _, patterns := range d.patterns {
		part, err := usdt.Select(usdt.Target{Selection: sel}, patterns...)
		if errors.As(err, new(*usdt.NotFoundError)) {
			err = nil // it has probes for others
		}
		file.parts, file.errs = append(file.parts, part), append(file.errs, err)
		file.weights = append(file.weights, weight(part))
	}
	return file, nil
}

// kept tells of writes.
type kept struct {
	procwatch.Kept
	*writes
}

func (k kept) Written() { k.writes.Written() }

// writes has a function called once a file has been detached because it is
// written to, also if that was before the function was known.
type writes struct {
	mu      sync.Mutex
	call    func()
	written bool
}

func (w *writes) Written() {
	w.mu.Lock()
	w.written = true
	call := w.call
	w.mu.Unlock()
	if call != nil {
		call()
	}
}

func (w *writes) WhenWritten(call func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.call = call; w.written {
		go call()
	}
}

const fileSitesOption = "Limits.FileSites"

// semaphoreSites is the number of sites that one with a semaphore counts for.
// Where a process maps the code and not the semaphores, the kernel searches a
// list of all such semaphores for each of them.
const semaphoreSites = 8

// A site counts for one more for each textBytes of its texts and for each
// siteArguments of its arguments, a blank between two: so limits on sites bound
// the memory for them.
const (
	textBytes     = 1 << 10
	siteArguments = 12
)

// weight returns the number of sites that a selection counts for, 0 for nil.
func weight(sel *usdt.Selection) (weight int) {
	if sel == nil {
		return 0
	}
	for _, site := range sel.Sites() {
		if weight++; site.SemaphoreOffset != 0 {
			weight += semaphoreSites - 1
		}
		blanks := 0
		for i := range len(site.Arguments) {
			if site.Arguments[i] <= ' ' {
				blanks++
			}
		}
		weight += (len(site.Provider)+len(site.Name)+len(site.Arguments))/textBytes +
			blanks/siteArguments
	}
	return weight
}

// PerProcess reports whether a file is attached to each process alone. Some
// semaphores can only be counted in a process that has started.
func (d *driver[A]) PerProcess(file *procwatch.CachedFile) bool {
	return d.perProcess || file.IsMiscounted() && procfs.HasOwnPIDs(d.proc.Root())
}

func (f *watchedFile[A]) Attach(
	n int, pair *procwatch.ProcessFile, pid int,
) (attachment A, ok bool, err error) {
	if f.parts[n] == nil {
		return attachment, false, f.errs[n]
	}
	var process proc.Process
	if pid != 0 {
		process = pair.Process
	}
	attachment, err = f.driver.AttachPart(n, f.parts[n].ForPID(pid), pair.View(), process)
	return attachment, err == nil, err
}

func (f *watchedFile[A]) Sites(n int) int { return f.weights[n] }

func (f *watchedFile[A]) Semaphores(n int) (semaphores int) {
	if f.parts[n] == nil {
		return 0
	}
	for _, site := range f.parts[n].Sites() {
		if site.SemaphoreOffset != 0 {
			semaphores++
		}
	}
	return semaphores
}

// Retry says when to try again. The maps of a Manager are shared out, unless
// they could never hold the specs of one file.
func (d *driver[A]) Retry(err error) follow.When {
	var full *usdt.LimitError
	switch {
	case errors.As(err, &full) && full.Needed > full.Capacity:
		return follow.Never
	case full != nil:
		return follow.WithShare
	case errors.Is(err, usdt.ErrWritten):
		return follow.Later
	case errors.Is(err, usdt.ErrNotStarted):
		return follow.WhenReady
	default:
		return follow.Classify(err)
	}
}

// Explain names the file and the process, and the option of the watch that
// limits the sites of a file.
func (d *driver[A]) Explain(part int, pair *procwatch.ProcessFile, err error) error {
	var file *usdt.LimitError
	if errors.As(err, &file) && file.Option == "Target.MaxSites" {
		limit := *file
		limit.Option = fileSitesOption
		err = elffile.TooLarge(&limit)
	}
	failed := &Error{ProcessFile: *pair.View(), Err: err}
	if part == follow.WholeFile {
		return failed
	}
	return d.Attacher.Explain(part, failed)
}

func (d *driver[A]) Changed(c *follow.Changes[A]) {
	if d.changed != nil {
		d.changed(&Changes[A]{Attached: c.Attached, Detached: c.Detached, Errors: c.Errors,
			Missed: procwatch.Views(c.Missed)})
	}
}
