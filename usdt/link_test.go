// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// A method that cilium/ebpf adds to the interface would be that of nil.
func TestLinkDeclaresTheMethodsOfTheInterface(t *testing.T) {
	declared := reflect.TypeFor[link.Link]()
	for i := range declared.NumMethod() {
		method := declared.Method(i)
		if !method.IsExported() {
			continue
		}
		own, _ := reflect.TypeFor[*usdt.Link]().MethodByName(method.Name)
		file, _ := runtime.FuncForPC(own.Func.Pointer()).FileLine(own.Func.Pointer())
		qt.Check(t, qt.IsTrue(strings.HasSuffix(file, "link.go")), qt.Commentf("%s is declared in %s", method.Name, file))
	}
}

func TestLinkIsALinkOfCilium(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		process := testprog.Start(t, "target-pie")
		target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
		var lnk link.Link = c.attach(t, c.Collect3, target, "three", nil)
		if mode == usdt.ModeMulti {
			info, err := lnk.Info()
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(info.Type, link.UprobeMultiType))
		}
		qt.Check(t, qt.ErrorIs(lnk.Update(c.Collect), link.ErrNotSupported))
		qt.Check(t, qt.ErrorIs(lnk.Pin("/sys/fs/bpf/gousdt_test"), link.ErrNotSupported))
		qt.Check(t, qt.ErrorIs(lnk.Unpin(), link.ErrNotSupported))
		process.Fire("three", 1)
		c.next(t, 1)
		qt.Assert(t, qt.IsNil(lnk.Detach()))
		process.Fire("three", 1)
		c.silent(t)
	})
}
