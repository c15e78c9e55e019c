// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"

	"github.com/gousdt/gousdt/internal/messages"
	"github.com/gousdt/gousdt/internal/uprobeevent"
)

// cleanUp removes what tracers that were killed have left in tracefs, and
// returns the exit status. What programs do by themselves, when they attach
// next, can so be done before.
func cleanUp(m *messages.Messages, stdout *os.File) int {
	removed, err := uprobeevent.Remove()
	for _, name := range removed {
		if _, err := fmt.Fprintf(stdout, "removed %s/%s\n", uprobeevent.Group, name); err != nil {
			m.Warn("writing the output: %v", err)
			return exitError
		}
	}
	switch {
	case err != nil:
		m.Warn("--cleanup: %v", err)
		return exitError
	case len(removed) == 0:
		return exitNothing
	}
	return exitWatched
}
