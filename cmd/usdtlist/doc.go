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
// usdtlist --help shows the flags.
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
// # JSON
//
// --json prints one object, whose members
// https://github.com/gousdt/gousdt/blob/main/docs/json.md explains.
package main

// From the flags to the list, for readers of the code:
//
//	main.go       the command line (help.txt, short.txt: what --help and -h say)
//	list.go       each file: opened, its probes picked and printed; why there is
//	              nothing to list, or some notes are missing
//	walk.go       the files in directories and lists, for -r and --files-from
//	processes.go  -p and -a: which processes, their files, each once, and what a
//	              name on the command line means to a process
//	print.go      one line for each probe, or every site with its arguments, or
//	              lines for other tools
//	json.go       a JSON document (internal/jsontext knows the syntax)
