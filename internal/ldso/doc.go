// SPDX-License-Identifier: BSD-2-Clause

// Package ldso finds the file behind a bare name such as "libstdc++.so.6",
// "libc.so", "c" or "python3", as the dynamic linker and the shell would.
//
// People name libraries by what they link with, and the kernel wants a file.
// [Find] goes from one to the other:
//
//   - A name with ".so" at its end or ".so." inside is a library. The exact
//     name is searched first; a name that ends in ".so" then also matches
//     its versions ("libc.so" finds libc.so.6), the newest one winning.
//   - Any other name is a program first, searched along PATH, and a library
//     second: "stdc++" finds libstdc++.so.6, "libc" finds libc.so.6. libbpf
//     divides names in the same way.
//
// A library is searched where the dynamic linker searches, in its order:
//
//  1. the directories of LD_LIBRARY_PATH, unless this process runs with
//     changed privileges (set-user-ID), as the dynamic linker does;
//  2. /etc/ld.so.cache, in the format of glibc 2.2 and newer;
//  3. the default directories, with Debian's per-machine ones;
//  4. musl's directories: those of /etc/ld-musl-MACHINE.path where there is
//     one, else its built-in ones.
//
// A file counts only if it is an ELF file for the wanted machine and class, so
// that linker scripts ("libc.so" of a -dev package) and the libraries of other
// machines are passed over.
//
// [FindInProcess] searches as another process would: in its file system, which
// may be that of a container, for the machine of its program, with its
// LD_LIBRARY_PATH and PATH. Symbolic links are then followed inside that file
// system. Its files are untrusted: sizes are bounded, nothing but regular files
// is opened. Whoever owns them may exchange a file between the search and its
// use.
//
// [Linked] goes from a program to the libraries that it is linked with, for
// which its DT_RUNPATH counts, too.
package ldso
