// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/internal/terminal"
)

const (
	// MaxOfKind is how many messages of one kind are printed.
	MaxOfKind = 16

	// maxKinds bounds the kinds: untrusted files can influence their number.
	// All further ones count as one kind.
	maxKinds = 64
	others   = "other messages"

	// maxLength is how many bytes of a message are printed: a name may have
	// megabytes.
	maxLength = 4 << 10
)

// Messages prints the messages of a command on standard error: warnings, notes,
// and progress while something takes long. Text of untrusted files and
// processes cannot drive the terminal or flood it: messages are escaped and
// cut, and of each kind the first [MaxOfKind] are printed and the others
// counted. The methods may be called concurrently.
type Messages struct {
	command    string
	out        *Writer
	isTerminal bool
	quiet      atomic.Bool

	mu       sync.Mutex
	progress string  // what stands on the last line, "" for nothing
	kinds    []*kind // in the order of their first messages
}

// kind counts the messages of a kind.
type kind struct {
	name          string
	printed, more int
}

// NewMessages returns the messages of a command. Each line begins with its
// name.
func NewMessages(command string, file io.Writer) *Messages {
	f, ok := file.(*os.File)
	return &Messages{command: command, out: NewWriter(file),
		isTerminal: ok && terminal.IsTerminal(f)}
}

// SetQuiet suppresses notes and progress.
func (m *Messages) SetQuiet() { m.quiet.Store(true) }

// Answer prints the [Answer] that an error of a command line is, or why the
// line is wrong. It returns the exit status.
func (m *Messages) Answer(err error, stdout io.Writer) (status int) {
	var answer Answer
	if errors.As(err, &answer) {
		if _, err = io.WriteString(stdout, string(answer)); err == nil {
			return 0
		}
		err = fmt.Errorf("writing the output: %w", WithoutPath(err))
	} else {
		err = fmt.Errorf("%w (%s -h shows how to use it)", err, m.command)
	}
	m.Warn("%v", err)
	return 2
}

// Hurry gives up messages that nobody reads, see [Writer.Hurry].
func (m *Messages) Hurry(patience time.Duration) { m.out.Hurry(patience) }

// Warn prints a message about something that is wrong.
func (m *Messages) Warn(format string, args ...any) {
	text := elffile.Shorten(fmt.Sprintf(format, args...), maxLength)
	m.Print(m.command + ": " + terminal.Clean(text) + "\n")
}

// Note prints a message about the course of the work, unless
// [Messages.SetQuiet] was called.
func (m *Messages) Note(format string, args ...any) {
	if !m.quiet.Load() {
		m.Warn(format, args...)
	}
}

// WarnOf prints a message as [Messages.Warn] does, if there have not been
// [MaxOfKind] of its kind. [Messages.Rest] names the kind, a noun in the
// plural.
func (m *Messages) WarnOf(kind, format string, args ...any) {
	m.mu.Lock()
	k := m.kind(kind)
	if k.printed == MaxOfKind {
		k.more++
		m.mu.Unlock()
		return
	}
	k.printed++
	m.mu.Unlock()
	m.Warn(format, args...)
}

// NoteOf does for [Messages.Note] what WarnOf does for Warn.
func (m *Messages) NoteOf(kind, format string, args ...any) {
	if !m.quiet.Load() {
		m.WarnOf(kind, format, args...)
	}
}

// More counts messages of a kind that are not printed.
func (m *Messages) More(kind string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n > 0 {
		m.kind(kind).more += n
	}
}

// Rest prints for each kind how many messages were not printed, and a hint such
// as how to see them all.
func (m *Messages) Rest(hint string) {
	m.mu.Lock()
	var rest []string
	for _, k := range m.kinds {
		if k.more > 0 {
			rest = append(rest, fmt.Sprintf("%s: %d more%s", k.name, k.more, hint))
		}
	}
	m.mu.Unlock()
	for _, text := range rest {
		m.Warn("%s", text)
	}
}

func (m *Messages) kind(name string) *kind {
	if i := slices.IndexFunc(m.kinds, func(k *kind) bool { return k.name == name }); i >= 0 {
		return m.kinds[i]
	}
	if len(m.kinds) >= maxKinds && name != others {
		return m.kind(others)
	}
	k := &kind{name: name}
	m.kinds = append(m.kinds, k)
	return k
}

// Cause returns the text of the innermost error, without the context. Errors
// with the same cause are of one kind.
func Cause(err error) string {
	for {
		var next error
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			next = e.Unwrap()
		case interface{ Unwrap() []error }:
			if all := e.Unwrap(); len(all) > 0 {
				next = all[0]
			}
		}
		if next == nil {
			return elffile.Shorten(err.Error(), maxCause)
		}
		err = next
	}
}

// maxCause is how many bytes of a cause are kept.
const maxCause = 200

// Print prints text that is safe for a terminal already.
func (m *Messages) Print(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replaceProgress(text, m.progress)
}

// replaceProgress prints text in place of the progress on the last line, and
// then the new progress. It waits until both are written. There is nowhere to
// report an error.
func (m *Messages) replaceProgress(text, progress string) {
	if m.progress != "" {
		text = eraseLine + text
	}
	m.progress = progress
	_, _ = io.WriteString(m.out, text+progress)
	_ = m.out.Flush()
}

func (m *Messages) show(progress string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replaceProgress("", progress)
}

const eraseLine = "\r\x1b[K"

// Hide erases progress from the terminal until its next update, so that
// something else can be printed.
func (m *Messages) Hide() { m.show("") }

// progressDelay is the time until progress is shown, and between its updates.
const progressDelay = 300 * time.Millisecond

// During shows a text with the time since the call, if that is long and
// standard error is a terminal, until done is called.
func (m *Messages) During(format string, args ...any) (done func()) {
	text := fmt.Sprintf(format, args...)
	start := time.Now()
	return m.Progress(func() string {
		return fmt.Sprintf("%s %.1f s", text, time.Since(start).Seconds())
	})
}

// Progress is During with a text that changes.
func (m *Messages) Progress(text func() string) (done func()) {
	if !m.isTerminal || m.quiet.Load() {
		return func() {}
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		ticks := time.NewTicker(progressDelay)
		defer ticks.Stop()
		defer m.show("")
		for {
			select {
			case <-ticks.C:
				m.show(terminal.Clean(text()))
			case <-stop:
				return
			}
		}
	})
	var once sync.Once
	return func() {
		once.Do(func() { close(stop) })
		running.Wait()
	}
}

const (
	// writeSize is how many bytes are collected before they are written. Waking
	// up the writing thread takes as long as printing hundreds of events, and a
	// pipe's 64 KiB would hold only a few hundred in JSON.
	writeSize = 256 << 10

	// idleDelay is how long a text may wait for more to be written with it.
	idleDelay = 20 * time.Millisecond
)

// ErrNobodyReads is the error of a [Writer] after [Writer.Hurry].
var ErrNobodyReads = errors.New("nobody reads the output")

// Writer writes to a file that may block for ever, such as a pipe that nobody
// reads. Its own goroutine writes, so that callers can give up waiting. Texts
// are collected for 20 ms or up to 256 KiB, and then written together. The
// methods may be called concurrently.
type Writer struct {
	file io.Writer

	mu       sync.Mutex
	changed  *sync.Cond
	pending  []byte
	spare    []byte // for what comes while pending is written
	started  bool   // the goroutine that writes
	wanted   bool   // what is pending is to be written now
	armed    bool   // the timer will set wanted
	timer    *time.Timer
	writing  bool
	writes   int
	patience time.Duration // of a write, 0 without limit
	err      error
	failed   func() // called after an error
}

// NewWriter returns a writer to a file. The caller has to flush it at the end.
func NewWriter(file io.Writer) *Writer {
	w := &Writer{file: file}
	w.changed = sync.NewCond(&w.mu)
	return w
}

// write writes pending texts when that is wanted, until the process ends.
func (w *Writer) write() {
	w.mu.Lock()
	for {
		for !w.wanted || len(w.pending) == 0 {
			w.changed.Wait()
		}
		text := w.pending
		w.pending, w.wanted, w.writing = w.spare[:0], false, true
		w.writes++
		w.limit()
		w.changed.Broadcast() // there is room again
		w.mu.Unlock()
		_, err := w.file.Write(text)
		w.mu.Lock()
		w.spare, w.writing = text, false
		if err != nil && w.err == nil {
			w.fail(WithoutPath(err))
		}
		w.changed.Broadcast()
	}
}

func (w *Writer) want() {
	if !w.started {
		w.started = true
		go w.write()
	}
	w.wanted = true
	w.changed.Broadcast()
}

// Write takes a text, which is not divided between two writes. It waits while
// 256 KiB are pending. It returns the first error of any write so far.
func (w *Writer) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && len(w.pending) >= writeSize {
		w.want()
		w.changed.Wait()
	}
	if w.err != nil {
		return 0, w.err
	}
	w.pending = append(w.pending, text...)
	switch {
	case len(w.pending) >= writeSize:
		w.want()
	case !w.armed:
		w.armed = true
		if w.timer == nil {
			w.timer = time.AfterFunc(idleDelay, w.Now)
		} else {
			w.timer.Reset(idleDelay)
		}
	}
	return len(text), nil
}

// Now has what is pending written without waiting for more.
func (w *Writer) Now() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed {
		w.timer.Stop()
		w.armed = false
		w.want()
	}
}

// Flush waits until everything is written, and returns the first error of any
// write so far. Nothing is written after it.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && (len(w.pending) > 0 || w.writing) {
		w.want()
		w.changed.Wait()
	}
	return w.err
}

// OnError sets a function to call when a write fails. It is called at once if
// one has failed.
func (w *Writer) OnError(do func()) {
	w.mu.Lock()
	w.failed = do
	err := w.err
	w.mu.Unlock()
	if err != nil {
		do()
	}
}

// Hurry limits how long a write may take from now on. A write that takes longer
// fails with [ErrNobodyReads], and nothing is written after it.
func (w *Writer) Hurry(patience time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patience = patience
	w.limit()
}

// limit makes the present write fail if it takes longer than the patience.
func (w *Writer) limit() {
	if !w.writing || w.patience == 0 {
		return
	}
	number := w.writes
	time.AfterFunc(w.patience, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.writing && w.writes == number && w.err == nil {
			w.fail(ErrNobodyReads)
		}
	})
}

func (w *Writer) fail(err error) {
	w.err = err
	w.pending = nil
	w.changed.Broadcast()
	if w.failed != nil {
		go w.failed() // which may use the writer
	}
}

// WithoutPath returns the cause of an [os.PathError], or else err itself.
func WithoutPath(err error) error {
	var pathErr *os.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// IsInContainer reports whether a proc file system shows the processes of a PID
// namespace that is this process's, and not the initial one: processes outside
// of it are not seen.
func IsInContainer(proc string) bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && link != fmt.Sprintf("pid:[%d]", uint32(sys.InitialPIDNamespace)) &&
		procfs.HasOwnPIDs(proc)
}

// IsPlain reports whether a string is not empty, and has only ASCII letters,
// digits and the others.
func IsPlain(s, others string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return s != "" && strings.Trim(s, letters+others) == ""
}

// ShellWord returns a text as one word of a shell. Bytes that a terminal might
// obey are Escaped, as bash, zsh, ksh and POSIX of 2024 have it.
func ShellWord(s string) string {
	switch {
	case IsPlain(s, "_-./+,@%:"):
		return s
	case utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }):
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return "$'" + Escaped(s, '\'') + "'"
}

// Escaped returns a text as it stands in quotation marks in C and in shells.
// Octal escapes end after three digits, hexadecimal ones do not.
func Escaped(s string, mark byte) string {
	var b []byte
	for _, c := range []byte(s) {
		switch {
		case c == mark || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~':
			b = append(b, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
		default:
			b = append(b, c)
		}
	}
	return string(b)
}
