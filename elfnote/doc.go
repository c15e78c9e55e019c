// SPDX-License-Identifier: BSD-2-Clause

// Package elfnote reads the USDT probes of ELF files: which there are, where in
// the code their sites are, and how their arguments are described.
//
//	f, err := elfnote.Open("/usr/lib/x86_64-linux-gnu/libstdc++.so.6")
//	if err != nil { ... }
//	defer f.Close()
//	for site, err := range f.Sites() {
//		if err != nil { ... } // one note is broken: the others follow
//		fmt.Println(site.Provider, site.Name, site.Arguments)
//	}
//
// # From a note to a site
//
// The macros of sys/sdt.h leave a nop in the code, the site, and a note about
// it in the section .note.stapsdt. The note has three addresses (location, base
// and semaphore), each as wide as the file's class says and in the file's byte
// order, and three strings (provider, name and arguments). One probe has many
// sites where the compiler inlined or copied its function, and each of them has
// its own note, with its own arguments and its own semaphore.
//
// What a tracer needs is not in the note as it stands:
//
//   - Prelink moves a library to other addresses without rewriting its notes.
//     The linker put the section .stapsdt.base at the address the note calls
//     base. So the distance between the two is by how much location and
//     semaphore moved. Where there is no such section, or the note says 0,
//     nothing moved.
//   - A uprobe is set at an offset in the file, not at an address. The PT_LOAD
//     segment that holds an address tells its offset. The two differ in most
//     libraries of some linkers, and in every program that runs at fixed
//     addresses.
//   - A semaphore needs an offset as well. One in the zeroed part of a segment,
//     the bss, has none.
//
// This package does all of that and checks it: every site it returns can be
// attached to as far as the file tells, unless the [Kind] of the file says
// otherwise. What is wrong with a note comes as a [NoteError] in its place.
//
// # Reading only what is needed
//
// The notes are not loaded into memory when a program runs, so they are found
// through the section headers. A file whose section headers were removed has no
// probes. Four ranges are read: the file header with the program headers, the
// section headers, the section names, which are mostly right before them and
// come by the same read, and the note sections, through a buffer. Nothing
// depends on the size of the file. Symbols, the dynamic section and the build
// ID are read when they are asked for.
//
// Types and constants come from [debug/elf], but its reader is not used. Its
// documentation says that it is not hardened against adversarial input, and
// files come from strangers: a tracer reads whatever runs in a container. This
// package checks every length before it is used, bounds every size (see
// limits.go for each limit and its reason), allocates nothing by a number that
// the file claims before the file has shown to be that long, and does not
// panic. Being made for one purpose it is faster, too: to open a file takes
// half the time.
package elfnote
