// SPDX-License-Identifier: BSD-2-Clause

// Package elffile reads untrusted ELF files: headers, segments, symbols, the
// dynamic section, the build ID, debugging information and the separate debug
// file. Package elfnote is built on it, and everything else in this module that
// reads files of other programs uses it.
//
// Types and constants come from [debug/elf]. Its reader is not used: its
// documentation says that it is not hardened against adversarial input, and a
// file of one megabyte can make it allocate gigabytes. This package checks
// every length before it is used, bounds every size (limits.go has each limit
// with its reason), and does not panic. It allocates memory by a number in the
// file only after the file has shown that it is that long.
package elffile
