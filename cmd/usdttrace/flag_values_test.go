// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

func TestCommandsAreSplitAsAShellDoes(t *testing.T) {
	for text, want := range map[string][]string{
		`a b  c`:           {"a", "b", "c"},
		`sh -c 'a "b" \n'`: {"sh", "-c", `a "b" \n`},
		`a "b \"c\"" d\ e`: {"a", `b "c"`, "d e"},
		`a ''`:             {"a", ""},
	} {
		got, err := splitCommand(text)
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.DeepEquals(got, want), qt.Commentf("%s", text))
	}
	_, err := splitCommand(" ")
	qt.Check(t, qt.ErrorMatches(err, "the command is empty"))
}

func TestTimes(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1": time.Second, "0.5": time.Second / 2, "1s": time.Second, "500ms": time.Second / 2, "2m": 2 * time.Minute,
	} {
		var got time.Duration
		qt.Check(t, qt.IsNil(setTime(&got)(text)))
		qt.Check(t, qt.Equals(got, want), qt.Commentf("%s", text))
	}
	for _, text := range []string{"", "0", "-1", "s", "1x", "nan", "inf", "1e99"} {
		qt.Check(t, qt.ErrorMatches(setTime(new(time.Duration))(text), "want seconds, .*"),
			qt.Commentf("%s", text))
	}
}
