// SPDX-License-Identifier: BSD-2-Clause

package watch

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
)

// A Part is what a watch attaches with, and the probes that it is for.
// [Program] makes one for a program of a Manager, and Part of trace.Session one
// for a session. A Part of your own attaches by other means.
//
// One goroutine at a time calls Attach, Detach and Descriptors, which must not
// call the watch.
type Part[A any] struct {
	// Patterns pick the probes: those that match any of them, or all probes if
	// there is no pattern.
	Patterns []elfnote.Pattern

	// OptionsFor, if set, returns the options of each attachment. With a Cookie
	// or SiteCookie for each file or process, programs, events, filters and
	// aggregations tell them apart. In the maps of a Manager each cookie takes
	// specs of its own, see [usdt.ManagerOptions].MaxSpecs.
	//
	// The argument is the file and the process to be attached. For an
	// attachment to every process, it has the first process found with the
	// file. OptionsFor is called before each attempt to attach. It must not
	// call the Watch.
	OptionsFor func(*proc.ProcessFile) usdt.AttachOptions

	// Name, if set, names the part in errors.
	Name string

	// Attach attaches the sites of a file, in the process that the selection is
	// restricted to, or in every process. found is the argument of OptionsFor.
	// Sites that the kernel refuses are left out, and tried no more.
	Attach func(found *proc.ProcessFile, sites *usdt.Selection, opts *usdt.AttachOptions) (A, error)
	// Detach detaches all of them, and returns when that is done.
	Detach func(attachments []A) error
	// Descriptors returns the number of descriptors of an attachment.
	Descriptors func(attached A) int
	// Begin, if set, is called for a new watch. If that must end with what the
	// part attaches with, Begin sees to it. end is called by Watch.Close.
	Begin func(*Watch) (end func(), err error)
}

// New attaches to the probes that match the patterns of its parts, wherever a
// process maps a file that has such probes. The processes are scanned once for
// all parts, and files are read once. Sites that cannot be attached are
// skipped, see [usdt.Selection.Skipped]. A Watch begins with the first Sync or
// Run. It ends with Close, and as soon as a Manager or session of its parts is
// closed: then Run returns and Sync fails with an error that wraps
// [os.ErrClosed].
//
// The files that a scan finds are attached part by part, in the order of the
// parts, so that a program can count on those before it. A part that cannot be
// attached to a file does not affect the others.
//
// If the maps of a Manager, or the system's limits on open files or memory,
// leave no room, the Watch first detaches files that no process maps any more.
// A file that still fails is tried again before each scan of all processes, by
// Sync and Run, unless the file or the part is to blame. A file that lacked
// room is also tried again as soon as the Watch has detached something. Retries
// take no more than about 100 ms at a time: the rest is tried next time.
//
// changed, if not nil, gets what was attached and detached, and what went
// wrong. One goroutine at a time calls it: one that calls Sync, Run or Close,
// or one of the Watch's own when a file has lingered or something is tried
// again. It must not call these methods.
//
// The error wraps [os.ErrClosed] if a Manager or session is closed. Other
// errors say that there is no part, or a program that was not loaded for its
// Manager, or that processes of this proc file system cannot be attached to.
func New[A any](opts *Options, changed func(*Changes[A]), parts ...Part[A]) (*Watch, error) {
	if opts == nil {
		opts = &Options{}
	}
	if len(parts) == 0 {
		return nil, errors.New("a watch needs a part to attach with: see watch.Program, and Part of trace.Session")
	}
	d := &driverOf[A]{opts: *opts, parts: slices.Clone(parts), changed: changed}
	for i, part := range d.parts {
		if part.Attach == nil || part.Detach == nil || part.Descriptors == nil {
			return nil, fmt.Errorf("part %d of the watch has nothing to attach with: see watch.Program, "+
				"and Part of trace.Session", i)
		}
		d.all = append(d.all, part.Patterns...)
	}
	if slices.ContainsFunc(d.parts, func(part Part[A]) bool { return len(part.Patterns) == 0 }) {
		d.all = nil
	}
	w, err := newWatch(d, *opts, len(d.parts), d.all...)
	if err != nil {
		return nil, err
	}
	for _, part := range d.parts {
		if part.Begin == nil {
			continue
		}
		end, err := part.Begin(w)
		if err != nil {
			w.Close()
			return nil, err
		}
		w.ends = append(w.ends, end)
	}
	return w, nil
}

// An Error says that a watch could not attach to a file.
type Error struct {
	// ProcessFile has the process that was to be attached. For every process,
	// it is the first one found with the file.
	proc.ProcessFile
	Err  error
	part string // its name, "" if the error is about the file for all parts
}

func (e *Error) Error() string {
	of := ""
	if e.part != "" {
		of = e.part + ": "
	}
	return fmt.Sprintf("%sattaching to %s in process %s: %v", of, e.Path, e.Process, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// A location is a file in one process or, if Process is zero, in every process.
type location struct {
	Process procwatch.ID
	File    procfs.FileID
}

func (p location) isInEveryProcess() bool { return p.Process == procwatch.ID{} }

// wholeFile stands for all parts of a file where one could be named.
const wholeFile = -1

// A driver opens and attaches the files that a Watch finds. The Watch makes one
// call at a time to it and its files, except for Detach, and for calls of Open
// and Attach that take too long.
type driver interface {
	// Open opens the file of a pair, once for all processes that map it. The
	// driver calls written, on a goroutine of its own, once it has detached the
	// whole file because it is written to.
	Open(pair *procwatch.ProcessFile, written func()) (openFile, error)
	// PerProcess reports whether a file is attached in each process alone.
	PerProcess(file *procwatch.CachedFile) bool
	// Detach detaches all of them, and returns when that is done.
	Detach(attachments []attached) error
	// Retry says when something that failed with this error may succeed.
	Retry(err error) retryTime
	// Explain returns the error to report for one of Open, with wholeFile as
	// part, or of Attach.
	Explain(part int, pair *procwatch.ProcessFile, err error) error
	// Changed reports what has changed.
	Changed(*round)
}

// attached is what a driver has attached.
type attached interface {
	// Descriptors returns how many it has.
	Descriptors() int
}

// An openFile is a file that a driver has opened.
type openFile interface {
	// Attach attaches a part of the file in the process with this PID, or in
	// every process if the PID is 0. The pair is the process in which the file
	// was found. ok is false if the file has nothing for this part.
	Attach(part int, pair *procwatch.ProcessFile, pid int) (a attached, ok bool, err error)
	// Sites returns the number of sites that a part of the file counts for.
	Sites(part int) int
	// Semaphores returns the number of sites of a part that have one.
	Semaphores(part int) int
	// HoldsWriters returns nil if a writer waits for that. A file that may be
	// written to before it is detached does not linger. The error wraps EAGAIN
	// if a writer was there already.
	HoldsWriters() error
	// Close closes the file. What is attached stays attached.
	Close() error
}

// A retryTime says when something that has failed may succeed.
type retryTime int

const (
	// never is for a fault of the file or the program.
	never retryTime = iota
	// later is for an error that may pass.
	later
	// withRoom is for an error that may pass, and earlier if something is
	// detached.
	withRoom
	// withShare is for a lack of something that the Watch shares out: owners
	// that have more of it give some up.
	withShare
	// withTime is for an owner that must not take more time yet, or a call that
	// goes on.
	withTime
	// withAnswer is for a call that blocks, of the file or of others of its
	// owner.
	withAnswer
	// whenReady is for a process that is starting. It is tried again soon, and
	// reported only if it has not started for a long time.
	whenReady
)

// errNotSupported is ENOTSUPP, by which kernels refuse some instructions.
const errNotSupported = syscall.Errno(524)

// classify says that an error of the system may pass, with few exceptions. Of
// other errors only ErrChanged may.
func classify(err error) retryTime {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		if errors.Is(err, procfs.ErrChanged) {
			return later
		}
		return never
	}
	switch errno {
	case syscall.EOPNOTSUPP, errNotSupported:
		return never
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC:
		return withRoom
	default:
		return later
	}
}

// A driverOf attaches the parts of a watch.
type driverOf[A any] struct {
	opts    Options
	parts   []Part[A]
	all     []elfnote.Pattern // of all parts together, nil if one wants all probes
	changed func(*Changes[A])
}

// A watchedFile is a file whose sites have been checked, once for all.
type watchedFile[A any] struct {
	*usdt.Selection
	driver  *driverOf[A]
	parts   []*usdt.Selection // which share the file; nil if it has no sites for the part
	weights []int             // of these
	errs    []error           // why none of the sites for a part can be attached
}

func (d *driverOf[A]) Open(
	pair *procwatch.ProcessFile, written func(),
) (openFile, error) {
	file := &watchedFile[A]{driver: d}
	elf, _ := elfnote.NewFile(pair.Kept(written)) // reads nothing
	most := d.opts.Limits.ofFile()
	target := usdt.Target{ELF: elf, MaxSites: most, NoLease: d.opts.NoLease}
	if d.opts.DebugFiles {
		target.Symbols = debuginfo.AddInstalled
	}
	sel, err := usdt.Select(target, d.all...)
	if err != nil {
		return nil, err
	}
	if needed := weight(sel); most > 0 && needed > most {
		sel.Close()
		return nil, fmt.Errorf("%s: %w", pair.Path, elffile.TooLarge(&usdt.LimitError{
			Limit: "sites (one with a semaphore counts as 8, " +
				"one with long strings or many arguments as several)", Option: fileSitesOption,
			Capacity: most, Needed: needed}))
	}
	file.Selection = sel
	for i := range d.parts {
		part, err := usdt.Select(usdt.Target{Selection: sel}, d.parts[i].Patterns...)
		if errors.As(err, new(*usdt.NotFoundError)) {
			err = nil // it has probes for others
		}
		file.parts, file.errs = append(file.parts, part), append(file.errs, err)
		file.weights = append(file.weights, weight(part))
	}
	return file, nil
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
func (d *driverOf[A]) PerProcess(file *procwatch.CachedFile) bool {
	return d.opts.isPerProcess() || file.IsMiscounted() && procfs.HasOwnPIDs(procfs.FS(d.opts.Proc).Root())
}

func (f *watchedFile[A]) Attach(
	n int, pair *procwatch.ProcessFile, pid int,
) (_ attached, ok bool, err error) {
	if f.parts[n] == nil {
		return nil, false, f.errs[n]
	}
	part, found, sel := &f.driver.parts[n], pair.View(), f.parts[n].ForPID(pid, pair.Path)
	var opts usdt.AttachOptions
	if part.OptionsFor != nil {
		opts = part.OptionsFor(found)
	}
	for ok = true; ok; sel, ok = sel.WithoutRefused(err) {
		var a A
		if a, err = part.Attach(found, sel, &opts); err == nil {
			return attachedPart[A]{part, a}, true, nil
		}
	}
	return nil, false, err
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
func (d *driverOf[A]) Retry(err error) retryTime {
	var full *usdt.LimitError
	switch {
	case errors.As(err, &full) && full.Needed > full.Capacity:
		return never
	case full != nil:
		return withShare
	case errors.Is(err, usdt.ErrWritten):
		return later
	case errors.Is(err, usdt.ErrNotStarted):
		return whenReady
	default:
		return classify(err)
	}
}

// Explain names the file and the process, and the option of the watch that
// limits the sites of a file.
func (d *driverOf[A]) Explain(part int, pair *procwatch.ProcessFile, err error) error {
	var file *usdt.LimitError
	if errors.As(err, &file) && file.Option == "Target.MaxSites" {
		limit := *file
		limit.Option = fileSitesOption
		err = elffile.TooLarge(&limit)
	}
	failed := &Error{ProcessFile: *pair.View(), Err: err}
	if part != wholeFile {
		failed.part = d.parts[part].Name
	}
	return failed
}

// attachedPart is an attachment of a part.
type attachedPart[A any] struct {
	part *Part[A]
	of   A
}

func (a attachedPart[A]) Descriptors() int { return a.part.Descriptors(a.of) }

// attachmentsOf returns the attachments themselves.
func attachmentsOf[A any](all []attached) (attachments []A) {
	for _, a := range all {
		attachments = append(attachments, a.(attachedPart[A]).of)
	}
	return attachments
}

// Detach waits for the kernel once for all parts.
func (d *driverOf[A]) Detach(all []attached) error {
	parts := make(map[*Part[A]][]attached)
	for _, a := range all {
		part := a.(attachedPart[A]).part
		parts[part] = append(parts[part], a)
	}
	var ends []detaching
	for part, of := range parts {
		ends = append(ends, func() error { return part.Detach(attachmentsOf[A](of)) })
	}
	return sys.CloseTogether(ends)
}

type detaching func() error

func (d detaching) Close() error { return d() }

func (d *driverOf[A]) Changed(r *round) {
	if d.changed != nil {
		d.changed(&Changes[A]{Attached: attachmentsOf[A](r.attached), Detached: attachmentsOf[A](r.detached),
			Errors: r.errors, Missed: procwatch.Views(r.missed)})
	}
}
