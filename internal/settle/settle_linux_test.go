// SPDX-License-Identifier: BSD-2-Clause

package settle

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

func TestFileWaitsForTheWriter(t *testing.T) {
	testneeds.Root(t)
	path := filepath.Join(t.TempDir(), "file")
	file, err := os.Create(path)
	qt.Assert(t, qt.IsNil(err))
	reading, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer reading.Close()
	qt.Check(t, qt.IsFalse(File(reading, 10*time.Millisecond)))
	time.AfterFunc(10*time.Millisecond, func() { file.Close() })
	qt.Check(t, qt.IsTrue(File(reading, testneeds.Patience(time.Minute))))
}
