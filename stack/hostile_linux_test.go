// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// Files and processes that do not answer cost their owners their names, and
// nobody else.
func TestHostileUsersWhoseFilesDoNotAnswer(t *testing.T) {
	s := NewSymbolizer(nil) // and closed after the servers have ended
	t.Cleanup(func() { _ = s.Close() })
	hostile := testprog.StartUnanswering(t, testprog.Path(t, "target-static"))
	costs := testprog.StartCosts(t)
	began := time.Now()
	for range 3 {
		for pid := range hostile {
			s.Remember(pid)
		}
	}
	self := uint64(reflect.ValueOf(TestHostileUsersWhoseFilesDoNotAnswer).Pointer())
	frames := s.Frames(t.Context(), os.Getpid(), []uint64{self})
	took := time.Since(began)
	qt.Assert(t, qt.HasLen(frames, 1))
	executable, err := os.Executable() // go test strips it of its symbols
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(frames[0].File, executable))
	qt.Check(t, qt.IsTrue(took < testneeds.Patience(3*time.Second)), qt.Commentf("after %v", took))
	costs.Report(2, "stacks of six users whose files do not answer", "no output any more", "others named", took)
}
