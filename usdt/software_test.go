// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

func TestAttachToPython(t *testing.T) {
	texts := newTexts(t)
	python := testprog.StartPython(t, testprog.CallsOfPython)
	python.Do("call") // unseen
	lnk := texts.attach(t, usdt.Target{Path: python.File, PID: python.PID}, "python",
		"function__entry")
	python.Do("call")
	event := texts.next(t)
	for event.text != truncated(python.Script) {
		// The interpreter's own functions, on its way to ours.
		event = texts.next(t)
	}
	qt.Assert(t, qt.Equals(event.pid, python.PID))
	qt.Assert(t, qt.Equals(event.third, int64(python.Line)))
	function := make([]byte, len(python.Function)+1)
	readMemory(t, python.PID, uint64(event.second), function)
	qt.Assert(t, qt.Equals(string(function), python.Function+"\x00"))
	qt.Assert(t, qt.IsNil(lnk.Close()))
	python.Do("call")
}

// truncated returns the part of a string that fits into an event.
func truncated(s string) string { return s[:min(len(s), 63)] }

func TestAttachToTheCppLibrary(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		throw := testprog.StartThrow(t)
		target := usdt.Target{Path: throw.File, PID: throw.PID}
		names := []string{"throw", "catch", "rethrow"}
		for i, name := range names {
			lnk, err := c.Manager.Attach(c.Collect, target, &usdt.AttachOptions{Cookie: uint64(i)},
				elfnote.Exact("libstdcxx", name))
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(unavailable(lnk), 0))
		}
		throw.Do("throw")
		events := c.next(t, 4)
		var got []string
		for _, event := range events {
			got = append(got, names[event.Cookie])
			qt.Check(t, qt.Equals(event.ArgCnt, 2))
			// The thrown object and its type: the same ones each time.
			qt.Check(t, qt.Equals(event.Val[0], events[0].Val[0]))
			qt.Check(t, qt.Equals(event.Val[1], events[0].Val[1]))
			qt.Check(t, qt.IsTrue(event.Val[0] != 0 && event.Val[1] != 0))
		}
		qt.Assert(t, qt.DeepEquals(got, []string{"throw", "catch", "rethrow", "catch"}))
	})
}

func TestAttachToPostgres(t *testing.T) {
	texts := newTexts(t)
	server := testprog.StartPostgres(t)
	// Each query has a server process of its own, which is still to come.
	lnk := texts.attach(t, usdt.Target{Path: server.File}, "postgresql", "query__start")
	const query = "SELECT 'gousdt' || 1"
	qt.Assert(t, qt.Equals(server.Query(query), "gousdt1"))
	event := texts.next(t)
	qt.Assert(t, qt.Equals(event.text, query))
	qt.Assert(t, qt.IsTrue(event.pid != server.PID))
	qt.Assert(t, qt.IsNil(lnk.Close()))
	qt.Assert(t, qt.IsTrue(strings.HasPrefix(server.Query("SELECT version()"), "PostgreSQL")))
}
