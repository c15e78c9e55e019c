// SPDX-License-Identifier: BSD-2-Clause

package platform

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestMarkerSurvivesTheConsole(t *testing.T) {
	for _, e := range []Event{
		{Kind: Booted, Text: "6.12.117+deb13-cloud-amd64"},
		{Kind: Started, Job: 3},
		{Kind: Exited, Job: 3, Status: 137},
		{Kind: Failed, Text: "mounting /proc: no such device"},
		{Kind: Done},
	} {
		t.Run(string(e.Kind), func(t *testing.T) {
			line := Marker("abc", e)
			before, got, ok := ParseMarker("abc", line+"\r\n")
			qt.Assert(t, qt.IsTrue(ok))
			qt.Assert(t, qt.Equals(before, ""))
			qt.Assert(t, qt.Equals(got, e))

			before, got, ok = ParseMarker("abc", "[    1.5] something broke"+line)
			qt.Assert(t, qt.IsTrue(ok))
			qt.Assert(t, qt.Equals(before, "[    1.5] something broke"))
			qt.Assert(t, qt.Equals(got, e))
		})
	}
}

func TestWhatIsNoMarkerStaysOutput(t *testing.T) {
	for _, line := range []string{
		"",
		"ok  	github.com/gousdt/gousdt/usdt",
		Marker("another", Event{Kind: Done}),
		"@gousdt-guest abc",
		"@gousdt-guest abc done",
		`@gousdt-guest abc {"Kind":"exi`,
	} {
		before, e, ok := ParseMarker("abc", line)
		qt.Assert(t, qt.IsFalse(ok), qt.Commentf("line %q", line))
		qt.Assert(t, qt.Equals(before, line))
		qt.Assert(t, qt.Equals(e, Event{}))
	}
}

func TestMarkerIsOneLine(t *testing.T) {
	line := Marker("abc", Event{Kind: Failed, Text: "two\nlines"})
	qt.Assert(t, qt.IsFalse(strings.Contains(line, "\n")))
}
