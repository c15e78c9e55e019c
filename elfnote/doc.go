// SPDX-License-Identifier: BSD-2-Clause

// Package elfnote reads the USDT probes of ELF files: which probes a file has,
// where in the code their sites are, and how their arguments are described. It
// reads files of any machine on any system.
//
// This lists the sites of a file's probes with their arguments, which package
// argspec decodes:
//
//	file, err := elfnote.Open("/usr/lib/x86_64-linux-gnu/libstdc++.so.6")
//	if err != nil { ... }
//	defer file.Close()
//	for site, err := range file.Sites() {
//		if err != nil { ... }
//		arguments := argspec.Decode(nil, file, site.Location, site.Arguments)
//		fmt.Printf("%s:%s at %#x: %v\n", site.Provider, site.Name, site.Location, arguments)
//	}
//
// [File.Sites] holds none of the sites in memory. To choose probes it takes a
// [Pattern] or several, as wherever this module chooses probes: [MatchAny] says
// which sites match.
//
// # Probes, sites and notes
//
// The macros of sys/sdt.h leave a nop in the code, which is the site, and a
// note about it in the section .note.stapsdt. The note has three addresses
// (location, base and semaphore) and three strings (provider, name and
// arguments). A probe has many sites if the compiler inlined or copied its
// function. Each site has its own note, with its own arguments and its own
// semaphore.
//
// A tracer needs more than the note has. This package adds it:
//
//   - Prelink moves a library to other addresses without changing its notes.
//     The linker put the section .stapsdt.base at the address that the note
//     calls base. Location and semaphore have moved by the difference of the
//     two. Nothing has moved if there is no such section, or if the note has
//     the base 0.
//   - A uprobe is set at an offset in the file, not at an address. The PT_LOAD
//     segment that contains the address gives the offset. The two differ in
//     programs that run at fixed addresses, and in most libraries of some
//     linkers.
//   - A semaphore needs an offset in the file, too. A semaphore in the zeroed
//     part of a segment, the bss, has none.
//
// Every site is checked. As far as the file shows it, all returned sites can be
// attached to, except those of a debug file or an object file. A note that
// fails a check is reported as an error, and affects no other.
//
// # What is read
//
// A running program does not have the notes in memory: the section headers of
// the file lead to them. A file whose section headers were removed has no
// probes. Listing a file reads four ranges of it: the file header with the
// program headers, the section headers, the section names, and the note
// sections, through a buffer. The size of the file does not matter. Symbols,
// the dynamic section and the build ID are read when they are asked for.
//
// # Untrusted files
//
// A tracer reads the files of containers, so that files are untrusted. This
// package checks every length before it is used. Every size has a limit, with
// its reason in file.go here or read.go of internal/elffile. Memory is
// allocated only for data that the file has shown to have, and nothing panics.
// The types and constants are those of [debug/elf]. Its reader is not used: it
// is not hardened against such files, as its documentation says.
package elfnote
