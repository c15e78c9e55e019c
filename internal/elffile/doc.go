// SPDX-License-Identifier: BSD-2-Clause

// Package elffile reads ELF files that are untrusted: headers, segments,
// symbols, the dynamic section, the build ID and the separate debug file. It
// is what package elfnote is built on, and what everything else in this module
// that reads files of other programs uses.
//
// Types and constants come from [debug/elf], but not its reader, whose
// documentation says that it is not hardened against adversarial input: a file
// of one megabyte can make it allocate gigabytes. This package checks every
// length before it is used, bounds every size (limits.go names each limit and
// its reason), allocates nothing by a number that the file claims before the
// file has shown to be that long, and does not panic.
package elffile
