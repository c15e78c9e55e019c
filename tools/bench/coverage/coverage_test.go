// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"testing"

	"github.com/go-quicktest/qt"
)

// TestOurs measures this module as compare does. What its own tests take from
// the vectors, by way of files here, has to come out again.
func TestOurs(t *testing.T) {
	w, err := prepare("../../../internal/testdata/vectors", t.TempDir()) // no files with probes
	qt.Assert(t, qt.IsNil(err))
	for _, g := range w.groups {
		all, got := counts{}, counts{}
		for _, v := range g.files {
			all.add(v.expected, reply{})
			got.add(v.expected, answer(listOurs, v.path))
		}
		qt.Check(t, qt.Not(qt.Equals(all.refused, 0)))
		qt.Check(t, qt.Equals(got, counts{right: all.refused, rightlyNot: all.rightlyNot}),
			qt.Commentf("%s", g.title))
	}
	qt.Check(t, qt.HasLen(answer(listOurs, w.malformed).Sites, 2))
	qt.Check(t, qt.HasLen(answer(listOurs, w.thirteen).Sites[0].Args, 13))
	for _, path := range w.damaged {
		qt.Check(t, qt.Equals(answer(listOurs, path).Panic, ""))
	}
}
