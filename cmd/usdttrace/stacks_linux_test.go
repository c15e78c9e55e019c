// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
)

// A program is at other addresses in each process.
func TestStackOfTwoProcessesIsOneRow(t *testing.T) {
	testprog.RequireStacks(t)
	p := startTarget(t, "target-pie")
	other := &traced{Process: testprog.Start(t, p.path), path: p.path}
	for by, want := range map[string][]uint64{"stack": {5}, "stack,pid": {3, 2}} {
		r := watching(t, "--json", "--count", "--by", by, p.path, "gousdt_test:three")
		p.Fire("three", 3)
		other.Fire("three", 2)
		var counts []uint64
		for _, row := range r.interrupt().objects("row") {
			counts = append(counts, row.Count)
		}
		qt.Check(t, qt.DeepEquals(counts, want), qt.Commentf("by %s", by))
	}
}

// Flame graphs have each hit once, in whatever processes, and also of those that
// have ended.
func TestFlameGraphsHaveAllHits(t *testing.T) {
	p := startTarget(t, "target-pie")
	other := &traced{Process: testprog.Start(t, p.path), path: p.path}
	dir := t.TempDir()
	folded, page := filepath.Join(dir, "stacks.folded"), filepath.Join(dir, "stacks.html")
	r := watching(t, "--folded", folded, "--flamegraph", page, p.path, "gousdt_test:three")
	p.Fire("three", 3)
	other.Fire("three", 2)
	other.Stop()
	r.interrupt().ok()
	lines, err := os.ReadFile(folded)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Matches(strings.TrimSpace(string(lines)), `.*;main;.*fire_three 5`))
	text, err := os.ReadFile(page)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(string(text), `"title":"gousdt_test:three target-pie"`))
	qt.Check(t, qt.StringContains(string(text), `"root":{"name":"all","value":5,`))
}
