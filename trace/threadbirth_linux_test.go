// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

func TestBirthIsFoundInATask(t *testing.T) {
	const suspended = 50_000_000_000
	for _, test := range []struct {
		words []uint64
		ticks uint64
		ahead time.Duration
		want  int
	}{
		{[]uint64{1, 2, 12_345_678_901, 12_345_678_999, 5}, 1234, 0, 16},
		// It has been suspended.
		{[]uint64{1, 2, 12_345_678_901, 62_345_678_999, 5}, 6234, 0, 16},
		{[]uint64{1, 2, 12_345_678_901, 12_345_678_999, 5}, 1235, 0, bpfgen.None},
		{[]uint64{1, 2, 12_345_678_901, 72_345_678_999, 5}, 7234, 0, bpfgen.None},
		{[]uint64{1, 12_345_678_901, 12_345_678_999, 0}, 1234, 0, 8},
		{[]uint64{1, 12_345_678_901, 12_345_678_999, 0}, 101_234, 1000 * time.Second, 8},
		{[]uint64{1, 12_345_678_901, 12_345_678_999, 0}, 234, -10 * time.Second, 8},
		{nil, 1234, 0, bpfgen.None},
		{[]uint64{0, 0}, 0, 0, bpfgen.None},
		{[]uint64{1, 1}, 0, 0, bpfgen.None},
	} {
		var task []byte
		for _, w := range test.words {
			task = binary.NativeEndian.AppendUint64(task, w)
		}
		qt.Check(t, qt.Equals(findBirth(task, test.ticks, suspended, uint64(test.ahead)), test.want),
			qt.Commentf("%v", test.words))
	}
}
