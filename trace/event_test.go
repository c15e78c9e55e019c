// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestEventString(t *testing.T) {
	e := &Event{Probe: "postgresql:query__start", PID: 7}
	qt.Assert(t, qt.Equals(e.String(), "postgresql:query__start in process 7"))

	e.Command = "a\x1b[31m"
	e.Args = []Value{ValueOf(int64(-1)), {valueForm: valueForm{state: valueUnreadable}}}
	qt.Assert(t,
		qt.Equals(e.String(), `postgresql:query__start in process 7 (a\x1b[31m): -1, <unreadable>`))
}
