// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

func newMessages() (*Messages, *strings.Builder) {
	var out strings.Builder
	return NewMessages("tool", &out), &out
}

func TestMessages(t *testing.T) {
	m, out := newMessages()
	m.Warn("no %s\x1b[2J", "file")
	m.Note("watching")
	m.SetQuiet()
	m.Note("not seen")
	m.NoteOf("notes", "not seen")
	m.Warn("%s", strings.Repeat("x", 1<<20))
	m.Rest("")
	lines := strings.SplitAfter(out.String(), "\n")
	qt.Assert(t, qt.HasLen(lines, 4))
	qt.Check(t, qt.Equals(lines[0], `tool: no file\x1b[2J`+"\n"))
	qt.Check(t, qt.Equals(lines[1], "tool: watching\n"))
	qt.Check(t, qt.Equals(len(lines[2]), len("tool: ")+maxLength+1))
}

func TestMessagesOfAKindAreCounted(t *testing.T) {
	m, out := newMessages()
	for i := range 100 {
		m.WarnOf("odd files", "number %d", i)
	}
	m.WarnOf("even files", "even")
	m.More("even files", 3)
	m.Rest(" (--json lists them all)")
	lines := strings.Split(out.String(), "\n")
	qt.Check(t, qt.Equals(strings.Count(out.String(), ": number "), MaxOfKind))
	qt.Check(t, qt.DeepEquals(lines[len(lines)-4:], []string{
		"tool: even", "tool: odd files: 84 more (--json lists them all)",
		"tool: even files: 3 more (--json lists them all)", "",
	}))
}

func TestKindsAreBounded(t *testing.T) {
	m, out := newMessages()
	for i := range 100_000 {
		m.WarnOf(fmt.Sprint(i), "one")
	}
	m.Rest("")
	qt.Check(t, qt.IsTrue(strings.Count(out.String(), "\n") < 200))
	qt.Check(t, qt.StringContains(out.String(), fmt.Sprintf("other messages: %d more\n",
		100_000-maxKinds-MaxOfKind)))
}

func TestCause(t *testing.T) {
	cause := errors.New("innermost")
	for _, err := range []error{
		cause,
		fmt.Errorf("a: %w", &fs.PathError{Op: "open", Path: "b", Err: cause}),
		fmt.Errorf("a: %w: %w", cause, errors.New("another")),
		errors.Join(cause, errors.New("another")),
	} {
		qt.Check(t, qt.Equals(Cause(err), "innermost"), qt.Commentf("%v", err))
	}
	qt.Check(t, qt.Equals(len(Cause(errors.New(strings.Repeat("x", 1<<20)))), maxCause))
}

func pipe(t *testing.T) (reader, writer *os.File) {
	t.Helper()
	reader, writer, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { reader.Close(); writer.Close() })
	return reader, writer
}

func TestWriterFlushesWhenNothingMoreComes(t *testing.T) {
	reader, file := pipe(t)
	w := NewWriter(file)
	for _, line := range []string{"one\n", "two\n"} {
		fmt.Fprint(w, line)
		qt.Assert(t,
			qt.IsNil(reader.SetReadDeadline(time.Now().Add(testneeds.Patience(30*time.Second)))))
		buf := make([]byte, 100)
		n, err := reader.Read(buf)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(string(buf[:n]), line))
	}
	qt.Check(t, qt.IsNil(w.Flush()))
}

func TestWriterDoesNotWaitForMoreAfterNow(t *testing.T) {
	w := NewWriter(io.Discard)
	w.Now()
	fmt.Fprint(w, "one")
	w.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	qt.Check(t, qt.IsTrue(w.wanted || w.writes == 1))
	qt.Check(t, qt.IsFalse(w.armed || w.timer.Stop()))
}

func TestWriterKeepsTheOrder(t *testing.T) {
	var out strings.Builder
	w := NewWriter(&out)
	var want strings.Builder
	for i := range 100_000 {
		fmt.Fprintln(&want, i)
		fmt.Fprintln(w, i)
	}
	qt.Assert(t, qt.IsNil(w.Flush()))
	qt.Check(t, qt.IsTrue(out.String() == want.String()))
}

func TestWriterTellsTheFirstError(t *testing.T) {
	_, file := pipe(t)
	file.Close()
	w := NewWriter(file)
	told := make(chan error, 2)
	w.OnError(func() { told <- w.Flush() })
	_, err := w.Write([]byte("one"))
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.ErrorIs(<-told, os.ErrClosed)) // without anybody asking
	w.OnError(func() { told <- w.Flush() })
	qt.Check(t, qt.ErrorIs(<-told, os.ErrClosed))
	qt.Check(t, qt.ErrorIs(w.Flush(), os.ErrClosed))
	_, err = w.Write([]byte("two"))
	qt.Check(t, qt.ErrorIs(err, os.ErrClosed))
}

func TestWriterThatHurriesGivesUpAFullPipe(t *testing.T) {
	_, file := pipe(t)
	w := NewWriter(file)
	done := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			_, err = w.Write(make([]byte, 1<<20))
		}
		done <- err
	}()
	w.Hurry(time.Millisecond)
	qt.Check(t, qt.ErrorIs(<-done, ErrNobodyReads))
	qt.Check(t, qt.ErrorIs(w.Flush(), ErrNobodyReads))
}

func TestWriterThatHurriesWritesAllThatIsRead(t *testing.T) {
	reader, file := pipe(t)
	w := NewWriter(file)
	w.Hurry(time.Minute)
	read := make(chan int, 1)
	go func() {
		total := 0
		buf := make([]byte, 1<<20)
		for {
			n, err := reader.Read(buf)
			if total += n; err != nil {
				read <- total
				return
			}
		}
	}()
	for range 100 {
		w.Write(make([]byte, 100_000))
	}
	qt.Assert(t, qt.IsNil(w.Flush()))
	file.Close()
	qt.Check(t, qt.Equals(<-read, 100*100_000))
}

func TestShellWord(t *testing.T) {
	bash := testneeds.Tool(t, "bash", "bash")
	for _, text := range []string{"/plain", "two words", "it's", `a\b"$HOME"`, "naïve",
		"\x1b[2J'\\x", "\xff\x01" + "1", "\u009b"} {
		word := ShellWord(text)
		qt.Check(t, qt.IsFalse(strings.ContainsFunc(word, unicode.IsControl)),
			qt.Commentf("%q", word))
		out, err := exec.Command(bash, "-c", "printf %s "+word).Output()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%q", word))
		qt.Check(t, qt.Equals(string(out), text))
	}
}
