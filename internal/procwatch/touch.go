// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"context"
	"os"
	"sync/atomic"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
)

// Texts brings the texts of programs into memory. What a program in the kernel
// reads has to be there. A text in a program's read-only data that nothing has
// touched yet is not, until a byte of it is read.
type Texts struct{ touching atomic.Int32 }

const (
	// touchEvery is how much of a file the kernel maps around a page that is
	// read (fault_around_bytes).
	touchEvery = 64 << 10

	// maxTouched bounds what is touched of one file in a process.
	maxTouched = 64 << 20

	// maxTouching bounds the reads that do not return: of a file whose server
	// has stopped. Each takes a thread.
	maxTouching = 8
)

// Touch brings the read-only data of a file that a process maps into its
// memory. The path is that of maps; the process may have ended. fs is the proc
// file system; nil is /proc.
func (t *Texts) Touch(ctx context.Context, fs *procfs.FS, pid int, path string) {
	if t.touching.Load() >= maxTouching {
		return
	}
	t.touching.Add(1)
	done := func() { t.touching.Add(-1) }
	if deadline.One(ctx, deadline.Memory, func() {
		files, _ := procfs.AllFiles(fs, pid) // none if it has ended
		memory, err := os.Open(procfs.Path(fs.Root(), pid, "mem"))
		if err != nil {
			return
		}
		defer memory.Close()
		touched, one := uint64(0), make([]byte, 1)
		for _, file := range files {
			for _, m := range file.Mappings {
				if file.Path != path || !m.Data || m.Writable || m.Shared {
					continue
				}
				for at := m.Start; at < m.End && touched < maxTouched; at += touchEvery {
					_, _ = memory.ReadAt(one, int64(at)) // then it stays unreadable
					touched += touchEvery
				}
			}
		}
	}, done) {
		done()
	}
}
