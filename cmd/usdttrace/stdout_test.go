// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"os"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

func TestOutputIsFlushedWhenNothingMoreComes(t *testing.T) {
	reader, writer, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	defer reader.Close()
	defer writer.Close()
	out := newOutput(writer)
	for _, line := range []string{"one\n", "two\n"} {
		out.Write([]byte(line))
		qt.Assert(t, qt.IsNil(reader.SetReadDeadline(time.Now().Add(30*time.Second))))
		buf := make([]byte, 100)
		n, err := reader.Read(buf)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(string(buf[:n]), line))
	}
	qt.Check(t, qt.IsNil(out.close()))
}

func TestColoursAreForTerminalsOnly(t *testing.T) {
	reader, writer, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	defer reader.Close()
	defer writer.Close()
	qt.Check(t, qt.IsFalse(newOutput(writer).colours))
	qt.Check(t, qt.Equals(newStyle(false), style{}))
}
