// SPDX-License-Identifier: BSD-2-Clause

// Package procwatch finds the files that processes execute, as they come and
// go, and which of them have USDT probes. The documentation of package proc
// says how, and how soon.
//
// [Files] reads from maps the files that a process maps as executable, and
// [MappedFile.Open] opens such a file. Two mappings are of the same file if
// their [FileID] is the same. A [Watcher] reports each [ProcessFile] when it
// appears and disappears, as [Changes].
//
// Everything but the opening and identifying of files, and kernel events, is
// portable.
package procwatch
