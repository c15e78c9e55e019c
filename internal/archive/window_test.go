// SPDX-License-Identifier: BSD-2-Clause

package archive

import (
	"bytes"
	"math"
	"testing"

	"github.com/go-quicktest/qt"
)

// Reads through a window find what the file has, and fail as the file does.
func TestWindow(t *testing.T) {
	data := make([]byte, 3*windowSize+100)
	for i := range data {
		data[i] = byte(i ^ i>>8)
	}
	file := bytes.NewReader(data)
	w := &window{file: file}
	const end = 3*windowSize + 100
	for _, at := range []struct {
		offset int64
		size   int
	}{
		{0, 8},
		{windowSize - 4, 8},     // across the end of the first window
		{windowSize + 2, 2},     // within the second
		{windowSize - 5, 1},     // before it
		{0, windowSize},         // a whole one
		{1, windowSize + 1},     // larger than one
		{2 * windowSize, 0},     // nothing
		{end - 8, 8},            // to the end of the file
		{end - 8, 9},            // across it
		{end, 1},                // at it
		{end, 0},                //
		{end + windowSize, 1},   // past it
		{math.MaxInt64, 1},      // far past it
		{-1, 1},                 // before the file
		{10, 60},                // and back
		{end - windowSize, 200}, // the last window
	} {
		got, want := make([]byte, at.size), make([]byte, at.size)
		n, err := w.ReadAt(got, at.offset)
		wantN, wantErr := file.ReadAt(want, at.offset)
		qt.Check(t, qt.Equals(n, wantN), qt.Commentf("%+v", at))
		qt.Check(t, qt.IsTrue(bytes.Equal(got, want)), qt.Commentf("%+v", at))
		if at.size > 0 {
			qt.Check(t, qt.Equals(err != nil, wantErr != nil),
				qt.Commentf("%+v: %v, want %v", at, err, wantErr))
		}
	}
}
