// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"strconv"

	"github.com/gousdt/gousdt/internal/cut"
	"github.com/gousdt/gousdt/internal/messages"
	"github.com/gousdt/gousdt/internal/terminal"
)

// newPrinter returns the printer for what the options ask.
func newPrinter(o *options, out *bufio.Writer, m *messages.Messages) printer {
	switch o.format {
	case formatTable:
		if o.verbose {
			return &detailsPrinter{out: out}
		}
		return &tablePrinter{out: out}
	case formatJSON:
		return newJSONPrinter(out)
	}
	return &pastePrinter{out: out, messages: m, line: pasteLineFor(o.format)}
}

// appendHex appends an address as 0x....
func appendHex(b []byte, address uint64) []byte {
	return strconv.AppendUint(append(b, "0x"...), address, 16)
}

// maxText is how many bytes of a text are shown where nothing stands behind it.
const maxText = 4 << 10

// appendCut appends a text, escaped and cut.
func appendCut(b []byte, s string, max int) []byte {
	return terminal.AppendEscaped(b, cut.Text(s, max))
}

// appendBlanks appends n blanks.
func appendBlanks(b []byte, n int) []byte {
	for range n {
		b = append(b, ' ')
	}
	return b
}
