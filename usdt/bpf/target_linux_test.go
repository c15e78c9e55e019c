// SPDX-License-Identifier: BSD-2-Clause

//go:build amd64

package bpf_test

import (
	"debug/elf"
	"io"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/go-quicktest/qt"
	"github.com/gousdt/gousdt/internal/testneeds"
)

// target is a process that passes the site when told to.
type target struct {
	path         string
	site, offset uint64
	command      *exec.Cmd
	in           io.Writer
	out          io.Reader
}

func startTarget(t *testing.T) *target {
	t.Helper()
	path := filepath.Join(t.TempDir(), "target")
	gcc := testneeds.Tool(t, "gcc", "gcc")
	output, err := exec.Command(gcc, "-nostdlib", "-static", "-no-pie", "-o", path,
		"testdata/target_amd64.S").CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", output))

	tgt := &target{path: path, command: exec.Command(path)}
	file, err := elf.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	symbols, err := file.Symbols()
	qt.Assert(t, qt.IsNil(err))
	for _, symbol := range symbols {
		if symbol.Name == "site" {
			section := file.Sections[symbol.Section]
			tgt.site, tgt.offset = symbol.Value, symbol.Value-section.Addr+section.Offset
		}
	}

	tgt.in, err = tgt.command.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	tgt.out, err = tgt.command.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(tgt.command.Start()))
	t.Cleanup(func() {
		tgt.command.Process.Kill()
		tgt.command.Wait()
	})
	return tgt
}

// hit passes the site once; programs attached to it have run when it returns.
func (tgt *target) hit(t *testing.T) {
	t.Helper()
	_, err := tgt.in.Write([]byte{0})
	qt.Assert(t, qt.IsNil(err))
	_, err = io.ReadFull(tgt.out, make([]byte, 1))
	qt.Assert(t, qt.IsNil(err))
}

// attach attaches every program of the collection to the site.
func (tgt *target) attach(t *testing.T, collection *ebpf.Collection, cookie uint64) {
	t.Helper()
	executable, err := link.OpenExecutable(tgt.path)
	qt.Assert(t, qt.IsNil(err))
	for _, program := range collection.Programs {
		l, err := executable.Uprobe("", program, &link.UprobeOptions{Address: tgt.offset,
			Cookie: cookie})
		qt.Assert(t, qt.IsNil(err))
		t.Cleanup(func() { l.Close() })
	}
}
