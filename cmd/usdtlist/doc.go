// SPDX-License-Identifier: BSD-2-Clause

// Usdtlist lists the USDT probes of executables and libraries.
//
//	$ usdtlist libstdc++.so.6
//	File: /lib/x86_64-linux-gnu/libstdc++.so.6
//	PROVIDER   NAME     SITES  LOCATION  SEMAPHORE  ARGUMENTS
//	libstdcxx  catch        1  0xa7f05   -          8@%rdx 8@-80(%rbx)
//	libstdcxx  throw        1  0xa90a1   -          8@%rdi 8@%rsi
//	libstdcxx  rethrow      1  0xa9139   -          8@%rdx 8@%rax
//
// It also lists the files of running processes, in whatever container they are:
//
//	$ usdtlist -a 'python:gc__*'
//	File: /usr/bin/python3.11
//	  Mapped by: python3 8538 8540, gunicorn 9021
//	PROVIDER  NAME       SITES  LOCATION  SEMAPHORE  ARGUMENTS
//	python    gc__done       1  0x42873b  0xa84270   -8@%r12
//	python    gc__start      1  0x4287f3  0xa8426e   -4@112(%rsp)
//
// And it lists the files with probes in directories, such as those of an image:
//
//	$ usdtlist -r /usr
//
// usdtlist -h shows the flags.
//
// # Exit status
//
// The exit status is that of grep: 0 if probes were listed, 1 if there were
// none, 2 if something that was asked for could not be read. What can be read
// is listed in any case.
//
// With -a no single process is asked for. Processes that may not be read are
// counted on standard error, as are files that need a privilege to be opened.
// They do not change the exit status. With -r and --files-from the same is true
// of what cannot be read below a directory, or from a list.
//
// # The JSON document
//
// --json prints one object. Fields may be added in later versions; those named
// here keep their names and meanings. Names and argument strings of more than
// 4,096 bytes are cut and end in "...": those of real programs are shorter.
//
//	schema         the number of the schema, which docs/json.md has: 1
//	files          array, one object per file that could be read; with -p and
//	               -a, per file that has probes to list:
//	  file           path, as it was opened; with -p and -a, the path by which
//	                 the file can be opened from here: "path" if that is the
//	                 same file here, else the one below /proc/PID/root, or, if
//	                 the file is deleted or was never anywhere,
//	                 /proc/PID/map_files/START-END
//	  path           path as the first of the processes sees it (-p and -a
//	                 only, as the next three)
//	  deleted        true if nothing is at that path any more, or another file
//	  pids           array of the processes that map the file; empty for one
//	                 that was named and is not mapped
//	  processes      array of the same processes, one object for each:
//	    pid
//	    command        name of the process
//	    path           as above, as this process sees it
//	    deleted        likewise
//	  build_id       GNU build ID in hexadecimal, null if there is none
//	  machine        "x86-64", "i386", "x32", "arm64", "arm", "s390x", "s390",
//	                 "ppc64le", "ppc64", "riscv64", "riscv32", "loongarch64";
//	                 for others the ELF constant, such as "EM_MIPS"
//	  class          32 or 64: the bits of an address
//	  byte_order     "little" or "big"
//	  kind           "executable" (runs at fixed addresses),
//	                 "position_independent" (library or PIE), "debug_file" or
//	                 "relocatable" (object file): nothing can be attached to
//	                 the last two
//	  probes         array, in the order of the file:
//	    provider
//	    name
//	    sites          array, at least one, in the order of the file:
//	      location         virtual address of the instruction, as linked
//	      offset           its offset in the file, which is what a uprobe
//	                       wants; null if nothing can be attached
//	      base             link-time address of .stapsdt.base that the note
//	                       recorded
//	      semaphore        virtual address of the semaphore, null if there is
//	                       none
//	      semaphore_offset its offset in the file, null if there is none
//	      arguments        the argument string, as in the file
//	      decoded          array, one object per argument:
//	        raw              this argument's part of the string
//	        kind             "constant", "register", "memory", "address" (the
//	                         value is an address, that of a symbol), "bytes"
//	                         (memory that is not a number of 1, 2, 4 or 8
//	                         bytes, such as a structure) or "unavailable"
//	        size             size of the value in bytes: 1, 2, 4 or 8; others
//	                         if bytes or unavailable, 0 if not known
//	        signed           true for a signed integer
//	        float            true for a floating point number
//	        text             all of it as text: "4 signed @ [rbp-20]"
//	        value            the constant (kind "constant" only)
//	        register         its name (kind "register" only)
//	        high             name of the register with the high half of a
//	                         value in two registers, or null (kind "register"
//	                         only)
//	        shift            bits to shift that register right (kind
//	                         "register" only)
//	        base             name of a register, or null (kinds "memory",
//	                         "address" and "bytes" only, as the next five)
//	        index            name of a register, or null
//	        index_extension  "uxtw" or "sxtw" if the low 32 bits of index
//	                         count, as an unsigned or signed number, and null
//	                         if all bits do
//	        scale            what index is multiplied by, after its extension
//	        displacement     what is added to base and index, signed
//	        address_32       whether the address is cut to 32 bits
//	        reason           why the value is not available (kind
//	                         "unavailable" only)
//	  malformed_notes  array of the notes that cannot be used:
//	    index          number of the note in the file, from 0, as readelf -n
//	                   prints them
//	    provider       as far as it could be read, else ""
//	    name           likewise
//	    error          what is wrong with it
//	errors         array, one object per file or process that could not be
//	               read:
//	  file           as on the command line; with -p and -a the path as the
//	                 process sees it, "" if the process as a whole could not
//	                 be read
//	  pid            the process (-p and -a only, if the error is about one
//	                 process)
//	  error          what happened
//
// Numbers are exact integers of up to 64 bits. A parser that keeps them in
// floating point loses the low bits of numbers above 2^53, which occur among
// constants.
//
// The strings of a file are arbitrary bytes, those of JSON are Unicode. In a
// string that is not valid UTF-8, each invalid byte is U+FFFD, and a second
// field has all bytes in hexadecimal. Its name ends in "_hex": provider_hex,
// name_hex, arguments_hex, file_hex. Characters that could drive a terminal are
// written as \u escapes.
package main

// From the flags to the list, for those who read the code:
//
//	main.go          the command line: flags, files, libraries, patterns (help.go: what
//	                 -h says)
//	list.go          each file: opened, its probes picked, handed to a printer; why there
//	                 is nothing to list, or some notes are missing
//	walk.go          the files in directories and lists, for -r and --files-from
//	processes.go     -p and -a: which processes, and what could not be read
//	mapped.go        their files, each once; what a name on the command line means to a
//	                 process
//	print.go         one line for each probe, or every site with its arguments
//	json.go          a JSON document (internal/jsontext knows the syntax)
//	paste.go         lines for other tools
