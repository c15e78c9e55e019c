// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

func TestAttachRefusesWhatLacksWhatIsRequired(t *testing.T) {
	testprog.RequireBPF(t)
	target := usdt.Target{Path: testprog.Path(t, "target-pie")}
	sel, err := usdt.Select(target, nil)
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	_, skipped := sel.Skipped()
	qt.Assert(t, qt.Not(qt.Equals(skipped, 0)))
	unavailable, structures := make(map[[2]string]bool), make(map[[2]string]bool)
	for _, site := range sel.Sites() {
		probe := [2]string{site.Provider, site.Name}
		for _, arg := range site.Args {
			unavailable[probe] = unavailable[probe] || arg.Kind == argspec.Unavailable
			structures[probe] = structures[probe] || arg.Kind == argspec.Bytes
		}
	}
	s := newSession(t, &trace.SessionOptions{})

	all := &usdt.AttachOptions{SelectOptions: usdt.SelectOptions{RequireAllSites: true}}
	_, err = s.Attach(target, all)
	qt.Check(t, qt.ErrorAs(err, new(*usdt.SiteError)))
	_, err = s.AttachSelection(sel, all)
	qt.Check(t, qt.ErrorAs(err, new(*usdt.SiteError)))

	arguments := &usdt.AttachOptions{SelectOptions: usdt.SelectOptions{RequireArguments: true}}
	_, err = s.AttachSelection(sel, arguments)
	qt.Check(t, qt.ErrorMatches(err, `.*: argument \d+ \(.*\) cannot be fetched: .*`))
	for probe := range unavailable {
		switch {
		case unavailable[probe]:
			_, err := s.Attach(target, arguments, elfnote.Exact(probe[0], probe[1]))
			qt.Check(t, qt.ErrorAs(err, new(*usdt.SiteError)))
		case structures[probe]: // events have their bytes
			a, err := s.Attach(target, arguments, elfnote.Exact(probe[0], probe[1]))
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.IsNil(a.Close()))
		}
	}
}
