// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"github.com/gousdt/gousdt/internal/helptext"
	"github.com/gousdt/gousdt/internal/probenames"
)

// completer completes the command's words.
func completer() *helptext.Completer {
	return probenames.Completer(usage, map[string][]string{"FORMAT": formats[:]})
}
