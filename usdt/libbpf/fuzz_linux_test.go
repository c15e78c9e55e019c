// SPDX-License-Identifier: BSD-2-Clause

package libbpf

import (
	"bytes"
	"debug/elf"
	"os"
	"runtime"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
)

// Nothing panics, an ELF file stays one, and the memory is in proportion.
func FuzzLoad(f *testing.F) {
	for _, name := range []string{"first", "tail"} {
		data, err := os.ReadFile(testprog.Path(f, "libbpf-installed/"+name+".bpf.o"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before, beforeErr := elf.NewFile(bytes.NewReader(data))
		o, err := read(bytes.NewReader(data))
		qt.Assert(t, qt.Equals(o == nil, err != nil))
		if err != nil || beforeErr != nil {
			return
		}
		after, err := elf.NewFile(bytes.NewReader(o.data))
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsTrue(len(after.Sections) >= len(before.Sections)))

		var start, end runtime.MemStats
		runtime.ReadMemStats(&start)
		_, _ = load(bytes.NewReader(data))
		runtime.ReadMemStats(&end)
		qt.Assert(t, qt.IsTrue(end.TotalAlloc-start.TotalAlloc < 4*maxZeroes+200*uint64(len(data))))
	})
}
