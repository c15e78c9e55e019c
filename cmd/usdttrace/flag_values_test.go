// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/watch"
)

// As everywhere, commas divide a list.
func TestPatterns(t *testing.T) {
	for _, test := range []struct {
		args, want []string
	}{
		{[]string{"a:b,c:d"}, []string{"a:b", "c:d"}},
		{[]string{"a:b,c:[d,e]", "*"}, []string{"a:b", "c:[d,e]", "*"}},
		{[]string{`a:b\,c`}, []string{`a:b\,c`}},
		{[]string{"-e", "b,d", "e:f,g:h"}, []string{"b", "d", "e:f", "g:h"}},
		{[]string{"--slow", "0", "a:b..a:c,d:e"}, []string{"a:b", "a:c", "d:e*"}},
	} {
		o, err := parseCommandLine(append([]string{"-a"}, test.args...))
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%q", test.args))
		var got []string
		for _, p := range o.patterns {
			got = append(got, p.String())
		}
		qt.Check(t, qt.DeepEquals(got, test.want), qt.Commentf("%q", test.args))
	}
}

func TestLimits(t *testing.T) {
	o, err := parseCommandLine([]string{"-a", "--limits", "file=7,owner=0", "--limits",
		"descriptors=9", "*"})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(o.limits, watch.Limits{FileSites: 7, OwnerSites: -1, Descriptors: 9}))
	for _, limit := range []string{"", "file", "file=", "file=x", "file=-1", "sites=3"} {
		_, err := parseCommandLine([]string{"-a", "--limits", limit, "*"})
		qt.Check(t, qt.IsNotNil(err), qt.Commentf("%s", limit))
	}
	_, err = parseCommandLine([]string{"--limits", "file=7", "/bin/true", "*"})
	qt.Check(t, qt.ErrorMatches(err, "--limits goes with .*"))
}
