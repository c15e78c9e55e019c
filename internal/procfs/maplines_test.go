// SPDX-License-Identifier: BSD-2-Clause

package procfs

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-quicktest/qt"
)

func TestLineReader(t *testing.T) {
	long := strings.Repeat("y", maxLine+10)
	tests := []struct {
		name, text string
		want       []string
		cut        int // index of a line that is too long, -1 for none
	}{
		{"nothing", "", nil, -1},
		{"one", "a\n", []string{"a"}, -1},
		{"empty lines", "\n\na\n", []string{"", "", "a"}, -1},
		{"no newline at the end", "a\nbc", []string{"a", "bc"}, -1},
		{"longest", strings.Repeat("x", maxLine-1) + "\nb\n",
			[]string{strings.Repeat("x", maxLine-1), "b"}, -1},
		{"too long", "a\n" + long + "\nb\n", []string{"a", long[:128], "b"}, 1},
		{"much too long", "a\n" + strings.Repeat(long, 5) + "\nb\nc",
			[]string{"a", long[:128], "b", "c"}, 1},
		{"too long at the end", "a\n" + long, []string{"a", long[:128]}, 1},
	}
	readers := map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r },
		"half":  iotest.HalfReader,
		"bytes": iotest.OneByteReader,
		"early": iotest.DataErrReader,
	}
	for _, test := range tests {
		for kind, wrap := range readers {
			t.Run(test.name+"/"+kind, func(t *testing.T) {
				lr := NewLines(wrap(strings.NewReader(test.text)))
				for i, want := range test.want {
					line, whole, err := NextLine(lr)
					qt.Assert(t, qt.IsNil(err))
					qt.Assert(t, qt.Equals(string(line), want))
					qt.Assert(t, qt.Equals(whole, i != test.cut))
				}
				for range 2 {
					_, _, err := NextLine(lr)
					qt.Assert(t, qt.ErrorIs(err, io.EOF))
				}
			})
		}
	}
}

func TestLineReaderReturnsTheReadersErrorAfterTheLines(t *testing.T) {
	broken := errors.New("broken")
	lr := NewLines(io.MultiReader(strings.NewReader("a\n"), iotest.ErrReader(broken)))
	line, _, err := NextLine(lr)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(string(line), "a"))
	_, _, err = NextLine(lr)
	qt.Assert(t, qt.ErrorIs(err, broken))

	lr.Reset(idleReader{})
	_, _, err = NextLine(lr)
	qt.Assert(t, qt.ErrorIs(err, io.ErrNoProgress))
}

type idleReader struct{}

func (idleReader) Read([]byte) (int, error) { return 0, nil }

func FuzzLineReader(f *testing.F) {
	const size = 256 // in place of maxLine, for the sake of speed
	f.Add("a\nb\n\nc", 3)
	f.Add(strings.Repeat("x", 3*size)+"\ny", 100)
	f.Fuzz(func(t *testing.T, text string, chunk int) {
		lr := bufio.NewReaderSize(nil, size)
		lr.Reset(&chunkReader{text, max(chunk, 1)})
		want := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if text == "" {
			want = nil
		}
		for _, w := range want {
			line, whole, err := NextLine(lr)
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(whole, len(w) < size || string(line) == w))
			if whole {
				qt.Assert(t, qt.Equals(string(line), w))
			}
		}
		_, _, err := NextLine(lr)
		qt.Assert(t, qt.ErrorIs(err, io.EOF))
	})
}

type chunkReader struct {
	text  string
	chunk int
}

func (r *chunkReader) Read(p []byte) (int, error) {
	if r.text == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.chunk)], r.text)
	r.text = r.text[n:]
	return n, nil
}
