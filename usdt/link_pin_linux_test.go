// SPDX-License-Identifier: BSD-2-Clause

package usdt_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// A uprobe_multi link can be pinned, and Close ends it all the same.
func TestLinks(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		process := testprog.Start(t, "target-pie")
		lnk, err := c.Attach(c.Collect,
			usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}, nil,
			elfnote.Exact(provider, "three"))
		qt.Assert(t, qt.IsNil(err))
		defer lnk.Close()
		links, err := lnk.Links()
		if mode != usdt.ModeMulti {
			qt.Assert(t, qt.ErrorIs(err, errors.ErrUnsupported))
			return
		}
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(links, 1))

		pins := t.TempDir()
		qt.Assert(t, qt.IsNil(unix.Mount("bpf", pins, "bpf", 0, "")))
		defer unix.Unmount(pins, unix.MNT_DETACH)
		pin := filepath.Join(pins, "three")
		qt.Assert(t, qt.IsNil(links[0].Pin(pin)))
		pinned, err := link.LoadPinnedLink(pin, nil)
		qt.Assert(t, qt.IsNil(err))
		mine, err := links[0].Info()
		qt.Assert(t, qt.IsNil(err))
		same, err := pinned.Info()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(same.ID, mine.ID))
		qt.Assert(t, qt.IsNil(pinned.Close()))

		qt.Assert(t, qt.IsNil(lnk.Close()))
		_, err = os.Stat(pin)
		qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))
		process.Fire("three", 1)
		c.silent(t)
	})
}
