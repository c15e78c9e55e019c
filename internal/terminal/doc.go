// SPDX-License-Identifier: BSD-2-Clause

// Package terminal makes untrusted text safe to print.
//
// Provider names, probe names, argument strings and file paths are arbitrary
// bytes, chosen by the user who built or named a file. Written to a terminal as
// they are, they could move the cursor, hide lines, set the window title or
// answer a query on the user's behalf. [Escape] writes every byte that is not
// plainly printable as a backslash escape, without losing information: the
// escaped text says exactly which bytes were there.
//
//	terminal.Escape("gc\x1b[2J")      // gc\x1b[2J    (a backslash, an x, 1, b, ...)
//	terminal.Escape("naïve")          // naïve        (printable text stays)
//	terminal.Escape("a\\b")           // a\\b         (so the escape is unambiguous)
//	terminal.Escape("\u202egnp.exe")  // \u202egnp.exe (text direction changes do not print)
//
// The escapes are those of a Go string literal.
package terminal
