// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/language/symbolname"
	"github.com/gousdt/gousdt/internal/ldso"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/settle"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
)

// targets has the files named on the command line, and facts about all files
// that are watched.
type targets struct {
	options     *options
	selections  []*usdt.Selection
	names       map[procfs.FileID]string // of the selections
	listed      []*listedFile            // of files that -l lists, and this kernel cannot attach
	same        [][2]string              // files that are named twice, by both names
	definitions *defs.Definitions        // nil without names

	mu       sync.Mutex
	matched  []bool                    // which patterns match a site that is or was watched
	files    map[string]int            // that were watched, with their sites; see maxWatched
	probes   map[[2]string]bool        // of these and of selections, if pairs are measured
	width    int                       // of the longest probe's name, see maxProbeWidth
	filtered error                     // the last *tracing.FilteredError or *defs.PairError
	fires    []string                  // when probes that were watched fire, see maxFires
	helpers  []string                  // probes that are attached so that those of calls fire
	missed   string                    // a file whose process ended before it was attached
	nearest  []string                  // probes that nearly match
	siblings []string                  // probes of the wanted providers
	keys     map[string]trace.Argument // definitions of keys that are arguments
	lacking  map[term]error            // why no site so far has what a term names, nil if one has
	notes    map[string]string         // what to know about arguments that flags name
	without  []error                   // of named files without a matching probe
	code     map[string][]codeSite     // sites in files of a command, by path; see maxWatched
}

// codeSite is where in a file a site is that matches a pattern.
type codeSite struct {
	offset  uint64
	pattern int
	counted bool // by a semaphore
}

// maxWatched bounds the files and the probes that are remembered: processes
// that start program after program, or rename files, have new ones watched
// without end.
const maxWatched = 1 << 16

func newTargets(o *options) *targets {
	return &targets{
		options: o, matched: make([]bool, len(o.patterns)),
		names:   make(map[procfs.FileID]string),
		files:   make(map[string]int),
		probes:  make(map[[2]string]bool),
		keys:    make(map[string]trace.Argument),
		lacking: make(map[term]error),
		notes:   make(map[string]string),
		code:    make(map[string][]codeSite),
	}
}

// attached adds a file, and reports whether it is one that is not remembered.
func (t *targets) attached(a *trace.Attachment) (isNew bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// A file that is attached for several processes counts once.
	_, known := t.files[a.Path()]
	if known || len(t.files) < maxWatched {
		t.files[a.Path()] = max(t.files[a.Path()], len(a.Sites()))
	}
	for _, site := range a.Sites() {
		t.addProbe(&site.Site)
	}
	for _, helper := range a.Helpers() {
		if len(t.options.pairs()) > 0 && len(t.helpers) < maxFires && !slices.Contains(t.helpers, helper) {
			t.helpers = append(t.helpers, helper)
		}
	}
	roles := t.roles()
	machine, _ := sys.KernelMachine() // of another one, arguments are as many
	path := a.Path()
	if len(t.options.files) > 0 {
		path = canonical(path)
	}
	var last *trace.Site
	for _, site := range a.Sites() {
		for i, p := range t.options.patterns {
			if t.options.command != nil && len(t.code)+len(t.code[path]) < maxWatched &&
				p.Match(site.Provider, site.Name) {
				t.code[path] = append(t.code[path], codeSite{site.Offset, i, site.SemaphoreOffset != 0})
			}
		}
		if last != nil && last.Provider == site.Provider && last.Name == site.Name {
			continue
		}
		last = site
		t.addFires(site)
		t.addKeys(site)
		own := site.Site // captured variables and members follow its arguments
		own.Args = own.Args[:min(len(own.Args), len(argspec.Parse(machine, own.Arguments)))]
		t.addLacking(&own, 0, roles)
		if n := terminal.Columns(terminal.Escape(probeName(site))); n <= maxProbeWidth {
			t.width = max(t.width, n)
		}
		for i, p := range t.options.patterns {
			t.matched[i] = t.matched[i] || p.Match(site.Provider, site.Name)
		}
	}
	return !known
}

// addKeys keeps the definitions of keys that are arguments. A key whose
// definition differs between probes has none.
func (t *targets) addKeys(site *trace.Site) {
	for _, key := range t.options.by {
		name := strings.TrimPrefix(ofText(key), "start.")
		n, ok := argumentNumber(name)
		for i := 0; !ok && i < len(site.Args); i++ {
			n, ok = i, site.Argument(i).Name == name
		}
		if !ok || n >= len(site.Args) {
			continue
		}
		means := site.Argument(n)
		if known, ok := t.keys[key]; ok && !reflect.DeepEqual(known, means) {
			means = trace.Argument{}
		}
		t.keys[key] = means
	}
}

// ofText returns the argument of str(ARGUMENT,N), or the key itself.
func ofText(key string) string {
	if inner, ok := strings.CutPrefix(key, "str("); ok {
		key, _, _ = strings.Cut(strings.TrimSuffix(inner, ")"), ",")
	}
	return key
}

// valueName returns the name of a key's value, "" if it has none. The name of a
// C++ type is that in the source.
func (t *targets) valueName(key string, value trace.Value) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	means := t.keys[key]
	switch value.Kind() {
	case trace.Unsigned, trace.Signed:
		return means.Values[value.Int()]
	case trace.Text:
		if means.Type == tracing.TypeName {
			data, complete := value.Data()
			name := symbolname.ReadableType(string(data), complete)
			if complete || name == symbolname.UnknownType {
				return elffile.Shorten(name, maxText)
			}
		}
	}
	return ""
}

func (t *targets) isAddress(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.HasSuffix(t.keys[key].Type, "*")
}

// watched returns how many sites are or were watched, and in how many files.
func (t *targets) watched() (sites, files int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.files {
		sites += n
	}
	return sites, len(t.files)
}

// setNotAttached takes the path of a file whose process ended before it was
// attached, or the error for a file whose hits would all be filtered out. The
// last of each is kept.
func (t *targets) setNotAttached(missed string, filtered error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.missed = cmp.Or(missed, t.missed)
	t.filtered = cmp.Or(filtered, t.filtered)
}

// notAttached returns what setNotAttached has kept.
func (t *targets) notAttached() (missed string, filtered error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.missed, t.filtered
}

// maxProbeWidth keeps one long name from pushing the arguments of all others to
// the right.
const maxProbeWidth = 40

// probeWidth returns the width for the column of probes.
func (t *targets) probeWidth() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.width
}

// find selects the sites in the files, which takes no privileges. A file
// without any is no error if another has some.
func (t *targets) find(files []string, pid int) error {
	var paths []string
	for _, name := range files {
		target := usdt.Target{Path: name, PID: pid, Symbols: debuginfo.AddInstalled,
			NoLease: t.options.noLease}
		if pid == 0 && !strings.Contains(name, "/") && commandline.IsFileHere(name) {
			target.Path = "./" + name
		}
		var sel *usdt.Selection
		var err error
		if pid == 0 {
			target.Path, err = ldso.Path(target.Path)
		}
		if err == nil {
			sel, err = usdt.Select(target, t.options.patterns...)
		}
		if err != nil && pid == 0 && len(files) == 1 {
			err = t.options.elsewhere(name, err)
		}
		switch {
		case isNothing(err):
			t.without = append(t.without, t.withPairs(target, err))
		case err != nil && commandline.IsMistaken(name):
			return fmt.Errorf("%w: %s", err, mistaken(name))
		case err != nil && t.options.list && t.addListed(name, err):
		case err != nil:
			return err
		case t.isSelected(sel):
			sel.Close()
		default:
			t.selections, paths = append(t.selections, sel), append(paths, sel.Name())
			for _, site := range sel.Sites() {
				t.addProbe(&site)
			}
		}
	}
	missing := errors.Join(t.without...)
	switch {
	case len(t.listed) > 0:
		return nil
	case len(t.selections) > 0:
		return t.missingPair(strings.Join(paths, " or "))
	case missing == nil:
		return nil
	case pid != 0:
		path := "" // java, for one, is a launcher: its probes are in libjvm.so
		eachPair(filterOf(pid, false), func(pair *procwatch.ProcessFile) {
			path = cmp.Or(path, pair.Path)
		}, t.options.patterns...)
		if path != "" {
			missing = fmt.Errorf("%w; process %d maps %s, which has matching probes: "+
				"name that, or no file", missing, pid, path)
		}
	}
	return &nothingError{missing}
}

// elsewhere adds to an error of Select which other file has the probes that the
// named one lacks.
func (o *options) elsewhere(name string, err error) error {
	var script *ldso.ScriptError
	path := name
	switch {
	case errors.As(err, &script):
		path = script.Path
	case !isNothing(err) && !errors.Is(err, elfnote.ErrNotELF):
		return err
	case !strings.Contains(name, "/") && !commandline.IsFileHere(name):
		if path, _ = ldso.Find(name); path == "" {
			return err
		}
	}
	if text := o.otherFile(path, name); text != "" {
		return fmt.Errorf("%w%s", err, text)
	}
	return err
}

func (o *options) otherFile(path, name string) string {
	patterns := o.patterns
	if o.everyProbe {
		patterns = nil
	}
	return commandline.Elsewhere(path, name, "usdttrace", o.args, patterns...)
}

// addProbe keeps the name of a probe, if pairs are measured.
func (t *targets) addProbe(site *usdt.Site) {
	if len(t.options.pairs()) > 0 && len(t.probes) < maxWatched {
		t.probes[[2]string{site.Provider, site.Name}] = true
	}
}

// withPairs returns err, or if pairs are measured and the file has some, an
// error that names those.
func (t *targets) withPairs(target usdt.Target, err error) error {
	wanted := t.options.pairs()
	if len(wanted) == 0 {
		return err
	}
	all, failed := usdt.Select(target)
	if failed != nil {
		return err
	}
	defer all.Close()
	listing, failed := defs.List(all.File())
	if failed != nil {
		return err
	}
	if e := t.definitions.NewPairError(wanted[0], listing); len(e.Pairs) > 0 {
		return fmt.Errorf("%s: %w", all.Name(), e)
	}
	return err
}

// isSelected reports whether a file is one of those that have been selected, by
// another name: attached twice, each hit would count twice. The same file of
// two mounts of overlayfs is not recognised: a user who can mount one can make
// its files look like those of another.
func (t *targets) isSelected(sel *usdt.Selection) bool {
	id, err := procfs.IdentifyFile(elffile.OSFile(sel.File()))
	if err != nil {
		return false // as on systems where nothing can be attached
	}
	if name, known := t.names[id.FileID]; known {
		t.same = append(t.same, [2]string{sel.Name(), name})
		return true
	}
	t.names[id.FileID] = sel.Name()
	return false
}

// isNothing reports whether an error says that a file has none of the probes.
func isNothing(err error) bool { return errors.As(err, new(*usdt.NotFoundError)) }

// attachFiles attaches to the files of the command line.
func (t *tracer) attachFiles() error {
	if err := t.checkArguments(); err != nil {
		return err
	}
	clear(t.targets.probes) // those of find: attached adds its own
	var files []*namedFile
	for i, sel := range t.targets.selections {
		done := t.messages.During("attaching to %s of %s", plural(len(sel.Sites()), "site"), sel.Name())
		a, err := t.attachSelection(sel)
		done()
		if errors.As(err, new(*defs.PairError)) { // perhaps another file has one
			t.targets.without = append(t.targets.without, err)
			continue
		}
		if err != nil {
			return err
		}
		attached := newAttachedFile(a, sel)
		f := &namedFile{path: sel.Name(), index: i, now: attached}
		files = append(files, f)
		t.watch.Go(func() { t.attachAgain(f, attached, a) })
		if t.ctx.Err() != nil {
			return errEnded
		}
	}
	t.watch.Go(func() { t.followPaths(files) })
	if t.targets.missingPair("") != nil { // find has seen one
		return errNoMatch
	}
	for _, err := range t.targets.without {
		t.messages.Warn("%v", err)
	}
	for _, names := range t.targets.same {
		t.messages.Note("%s is the same file as %s, and is watched once", names[0], names[1])
	}
	t.warnUnmatched("")
	return nil
}

func (t *tracer) attachSelection(sel *usdt.Selection) (*trace.Attachment, error) {
	from := sel
	if t.options.follow {
		from = sel.ForPID(0, "") // the session filters out other processes
	}
	a, err := t.session.Attach(usdt.Target{Selection: from}, nil)
	for rest, ok := from.WithoutRefused(err); ok; rest, ok = rest.WithoutRefused(err) {
		a, err = t.session.Attach(usdt.Target{Selection: rest}, nil)
	}
	if err != nil {
		return nil, err
	}
	t.targets.attached(a)
	t.warnSkipped(a, sel.Name())
	t.warnShared(a)
	t.warnTwice(a, t.options.pid)
	t.warnFramePointers(a)
	return a, nil
}

// touchFiles brings the texts of the files into the memory of the processes
// that map them now.
func (t *tracer) touchFiles() {
	if len(t.targets.selections) == 0 || t.options.command != nil {
		return
	}
	t.eachMapped(t.wanted(), func(p proc.Process, file *procfs.MappedFile) {
		if t.targets.isWatched(file) {
			t.texts.Touch(t.ctx, "", p.PID, file.Path)
		}
	})
}

// namedFile is a FILE: what stands at a path. A file that takes its place is
// attached, too.
type namedFile struct {
	path    string
	index   int         // of its selection
	refused os.FileInfo // cannot be attached

	mu      sync.Mutex // held while one of them is attached
	now     *attachedFile
	earlier []*attachedFile // that processes may still run
}

type attachedFile struct {
	*trace.Attachment
	sel *usdt.Selection

	// id is what the file was when it was attached. A file of overlayfs becomes
	// another one when it is copied up, as by chmod, and keeps its number.
	id procfs.FileID
}

func newAttachedFile(a *trace.Attachment, sel *usdt.Selection) *attachedFile {
	id, _ := procfs.IdentifyFile(elffile.OSFile(sel.File()))
	return &attachedFile{a, sel, id.FileID}
}

// path returns the path of a FILE as this process sees it.
func (a *attachedFile) path(name string) string {
	if pid := a.sel.PID(); pid != 0 && filepath.IsAbs(name) {
		return procfs.Path("/proc", pid, "root") + name
	}
	return name
}

// followPaths attaches what comes to stand at the paths of the files, until the
// tracing ends.
func (t *tracer) followPaths(files []*namedFile) {
	var paths []string
	for _, f := range files {
		paths = append(paths, f.path)
	}
	changed := watchPaths(t.ctx, paths) // nil where the kernel does not say it
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-t.ctx.Done():
			for _, f := range files {
				for _, old := range f.earlier {
					old.sel.Close()
				}
			}
			return
		case <-changed:
		case <-tick.C:
		}
		for _, f := range files {
			t.lookAt(f)
		}
	}
}

// lookAt attaches the file that stands at a path, if it is another one.
func (t *tracer) lookAt(f *namedFile) {
	var now struct {
		info     os.FileInfo
		sel      *usdt.Selection
		copiedUp bool
		err      error
	}
	f.mu.Lock()
	old, was := f.now, *f.now
	f.mu.Unlock()
	refused := f.refused
	if !deadline.One(t.ctx, memoryPatience, func() {
		isOther := false
		if now.info, now.err = os.Stat(was.path(f.path)); now.err == nil {
			isOther, now.copiedUp = t.targets.isOther(&was, f.path, now.info)
		}
		if isOther && !(refused != nil && os.SameFile(now.info, refused)) {
			now.sel, now.err = usdt.Select(usdt.Target{Path: f.path, PID: was.sel.PID(),
				NoLease: t.options.noLease}, t.options.patterns...)
		}
	}, func() {
		if now.sel != nil {
			now.sel.Close()
		}
	}) {
		return // it does not answer
	}
	var a *trace.Attachment
	switch {
	case now.info == nil || now.sel == nil && now.err == nil:
		return // there is none, or the same one
	case now.err == nil:
		f.mu.Lock()
		if now.copiedUp && (old.Err() != nil || *old != was) {
			f.mu.Unlock()
			now.sel.Close()
			return // it was written to: see attachAgain
		}
		if a, now.err = t.attachSelection(now.sel); now.err == nil {
			f.now, f.earlier = newAttachedFile(a, now.sel), append(f.earlier, old)
		}
		f.mu.Unlock()
	}
	if now.err != nil {
		if now.sel != nil {
			now.sel.Close()
		}
		// It may not be complete yet.
		if time.Since(now.info.ModTime()) > interval && t.ctx.Err() == nil {
			f.refused = now.info
			t.messages.WarnOf("replaced files", "%s is another file now, which is not watched: %v",
				f.path, now.err)
		}
		return
	}
	t.messages.NoteOf("replaced files", "%s is another file now: also watching %s in it, from now on",
		f.path, plural(len(now.sel.Sites()), "site"))
	attached := f.now
	t.targets.mu.Lock()
	t.targets.selections[f.index] = now.sel
	t.targets.names[attached.id] = f.path
	t.targets.mu.Unlock()
	t.watch.Go(func() { t.attachAgain(f, attached, a) })
	t.closeUnmapped(f)
}

// isOther reports whether another file than the attached one stands at a path
// now, perhaps because that was copied up.
func (t *targets) isOther(
	attached *attachedFile, path string, now os.FileInfo,
) (is, copiedUp bool) {
	file := elffile.OSFile(attached.sel.File())
	was, err := file.Stat()
	if err != nil || !os.SameFile(now, was) {
		return err == nil, false
	}
	id, err := procfs.IdentifyFile(file)
	if err != nil || id.FileID == attached.id {
		return false, false
	}
	if !copiesMetadata(file) {
		return true, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names[id.FileID] = path
	return false, false
}

// closeUnmapped detaches earlier files of a path that no process maps.
func (t *tracer) closeUnmapped(f *namedFile) {
	mapped := make(map[procfs.FileID]bool)
	t.eachMapped(nil, func(_ proc.Process, file *procfs.MappedFile) {
		if id, err := file.Identify(); err == nil {
			mapped[id.FileID] = true
		}
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.earlier = slices.DeleteFunc(f.earlier, func(old *attachedFile) bool {
		id, err := procfs.IdentifyFile(elffile.OSFile(old.sel.File()))
		isMapped := func(other procfs.FileID) bool { return other.MayBe(id.FileID) }
		if err != nil || slices.ContainsFunc(slices.Collect(maps.Keys(mapped)), isMapped) {
			return false
		}
		if err := old.Close(); err != nil {
			t.warnFailed(err)
		}
		t.targets.mu.Lock()
		delete(t.targets.names, old.id)
		t.targets.mu.Unlock()
		old.sel.Close()
		return true
	})
}

// canonical returns a path of this process as maps and records show it.
func canonical(path string) string {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// nameOf returns the name of a named file, "" if it is none of these.
func (t *targets) nameOf(id procfs.FileID) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if name, known := t.names[id]; known {
		return name
	}
	for named, name := range t.names { // overlayfs has other numbers in each mount
		if named.MayBe(id) {
			return name
		}
	}
	return ""
}

// isWatched reports whether a file that a process maps is or was watched.
func (t *targets) isWatched(file *procfs.MappedFile) bool {
	if len(t.options.files) > 0 {
		id, err := file.Identify()
		return err == nil && t.nameOf(id.FileID) != ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, watched := t.files[file.Path]
	return watched
}

// baseNames returns the last parts of the paths of the files that are or were
// watched.
func (t *targets) baseNames() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := make(map[string]bool)
	for path := range t.files {
		names[filepath.Base(path)] = true
	}
	for _, sel := range t.selections {
		names[filepath.Base(canonical(sel.Name()))] = true
	}
	return names
}

// attachAgain attaches to a file again whenever it has been written to, until
// the tracing ends.
func (t *tracer) attachAgain(f *namedFile, of *attachedFile, a *trace.Attachment) {
	const files = "files that were written to"
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-a.Done():
		}
		if !errors.Is(a.Err(), usdt.ErrWritten) {
			return
		}
		again, err := t.attachWritten(f, of)
		for failed := ""; err != nil; again, err = t.attachWritten(f, of) {
			if errors.Is(err, errReplaced) {
				return // followPaths attaches what takes its place
			}
			if text := err.Error(); text != failed && t.ctx.Err() == nil {
				failed = text
				t.messages.WarnOf(files, "%s was written to, and is not watched: %v", f.path, err)
			}
			select {
			case <-t.ctx.Done():
				return
			case <-time.After(interval):
			}
		}
		t.messages.NoteOf(files, "%s was written to: watching %s in it, from now on", f.path,
			plural(len(again.Sites()), "site"))
		a = again
	}
}

// attachWritten attaches to a file as soon as nobody has it open for writing.
func (t *tracer) attachWritten(f *namedFile, of *attachedFile) (*trace.Attachment, error) {
	target := usdt.Target{Path: f.path, PID: of.sel.PID(), Symbols: debuginfo.AddInstalled,
		NoLease: t.options.noLease}
	was, err := elffile.OSFile(of.sel.File()).Stat()
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(of.path(f.path), os.O_RDONLY|syscall.O_NONBLOCK, 0) // perhaps a pipe by now
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if now, err := file.Stat(); err == nil && !os.SameFile(now, was) {
		return nil, errReplaced
	}
	for until := time.Now().Add(longestWrite); !settle.File(file, interval/10) &&
		t.ctx.Err() == nil && time.Now().Before(until); {
	}
	sel, err := usdt.Select(target, t.options.patterns...)
	if err != nil {
		return nil, err
	}
	defer sel.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now != of {
		return nil, errReplaced
	}
	a, err := t.attachSelection(sel)
	if err == nil {
		of.Attachment, of.id = a, newAttachedFile(a, of.sel).id
	}
	return a, err
}

var errReplaced = errors.New("another file has taken its place")

// longestWrite is how long a file may be open for writing before it is attached
// all the same: it is detached when it is next written to.
const longestWrite = 10 * time.Second

// isFloat reports whether a term is an argument that is a float at a site of
// the files, or of what the processes map now.
func (t *tracer) isFloat(term string) (is bool) {
	look := func(sel *usdt.Selection) {
		for _, site := range sel.Sites() {
			probe := t.targets.definition(&site)
			n, ok := argumentIndex(term, &probe)
			is = is || ok && n < len(site.Args) && site.Args[n].Float
		}
	}
	for _, sel := range t.targets.selections {
		look(sel)
	}
	if len(t.options.files) > 0 {
		return is
	}
	pid := t.options.pid
	if t.command != nil {
		pid = t.command.pid
	}
	// What cannot be read has no arguments.
	_ = commandline.EachFile(pid, func(pair *procwatch.ProcessFile) {
		target := usdt.Target{ELF: pair.ELF(), Symbols: debuginfo.AddInstalled}
		sel, err := usdt.Select(target, t.options.patterns...)
		if err == nil {
			look(sel)
			sel.Close()
		}
	}, nil, t.options.patterns...)
	return is
}

const (
	// maxCommandFiles bounds the files that a command is known to map. Large
	// desktop programs are linked with some hundreds.
	maxCommandFiles = 4096

	// maxCommandWords bounds the words of a command that may name programs.
	maxCommandWords = 256
)

// commandFiles returns the programs that a command names, and the libraries
// that they are linked with: the program, the interpreter of a script, and
// every word that is a program, such as those after env, nice and sh -c.
// Attaching a program that is then not executed does no harm.
//
// Other files that the command is about, such as an operand of readelf, are
// among them, but not their libraries.
func commandFiles(program string, argv []string) []string {
	var files []string
	add := func(path string) {
		if path, err := filepath.Abs(path); err == nil && len(files) < maxCommandFiles &&
			!slices.Contains(files, path) {
			files = append(files, path)
		}
	}
	var addProgram func(path string, isRun bool, depth int)
	addProgram = func(path string, isRun bool, depth int) {
		add(path)
		if isRun {
			for _, library := range commandline.Linked(path) {
				add(library)
			}
		}
		if depth < maxInterpreters {
			for _, word := range commandline.Interpreters(path) {
				if path, err := exec.LookPath(word); err == nil {
					addProgram(path, isRun, depth+1)
				}
			}
		}
	}
	addProgram(program, true, 0)
	words := 0
	for _, argument := range argv[1:] {
		for word := range strings.FieldsFuncSeq(argument, isShellPunctuation) {
			if words++; words > maxCommandWords {
				return files
			}
			if path, err := exec.LookPath(word); err == nil {
				addProgram(path, !strings.Contains(word, "/"), 0)
			}
		}
	}
	return files
}

func isShellPunctuation(c rune) bool { return strings.ContainsRune(" \t\n;|&()`'\"$<>=", c) }

// maxInterpreters is how many scripts may interpret one another, as in Linux.
const maxInterpreters = 4
