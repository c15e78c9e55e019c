// SPDX-License-Identifier: BSD-2-Clause

// Package kernels has the scripts that run the tests of this repository on
// kernels of other versions and on machines of other kinds.
//
// What this module does depends on the kernel: on 5.10 a program cannot be
// given a cookie, on 6.1 there is no link to many sites, and s390x has its
// bytes the other way round. So its tests run on kernels of Debian under QEMU's
// software emulation, which works on any host, also in a container:
//
//	make test-kernels
//
// prints, after some minutes, a table of all kernels and machines: which way
// of attaching was used, how many tests passed, failed, and were skipped and
// why. A kernel that cannot be fetched is reported as not run.
//
//	kernels/run -only s390x/6.12 -v -run Attach ./usdt
//	kernels/run -only amd64=/boot/vmlinuz ./usdt
//
// run some by hand. A kernel of one's own needs what Debian's have built in:
// uprobes, BPF, tracefs, devtmpfs, tmpfs, cgroup2, an initramfs and the console
// of the board.
//
// # How it works
//
//	run       which kernels there are; fetches them and QEMU by
//	          internal/setup/debian, and has go test run on each
//	boot      runs one test binary, as go test -exec: packs it into an
//	          initramfs, boots, follows the console
//	machine   which machines there are
//	guest     the guest's first process: mounts, runs the test, turns off
//	selftest  does the guest, does the kernel have what the tests rely on?
//
// In the guest, the directory /src stands for the checkout: a test runs in its
// package's directory, with its testdata, and finds the traced programs through
// GOUSDT_TESTDATA. Dynamic loaders and libraries come from the cross compilers.
// The environment variable GOUSDT_GUEST names the kernel that was asked for;
// others that start with GOUSDT_ are passed on.
//
// # What it needs
//
// A host with Debian, or something like it, whose apt reaches Debian's archive;
// Go; cpio; cross compilers with their C libraries, which make kernels-setup
// installs, as root. QEMU 10 or newer is taken from the host, or is unpacked in
// the cache from the host's own suite or its backports; nothing is installed
// for that. (With QEMU 7.2, traced programs on s390x die at random.)
//
// All is in "gousdt/kernels" in the user's cache directory, about 700 MB:
// kernels, QEMU, apt's indexes, and in logs/ what each machine last printed.
// The archive is asked once a day. What is in the cache is used when it cannot
// be reached. The directory may be deleted. Backports keep kernels whose
// modules are gone: they run without, and what needs FUSE or overlayfs is
// skipped.
//
// # Limits
//
// One processor, no network but the loopback interface, no disk; 1 GB of memory
// unless said otherwise. Of the kernel's modules, those of FUSE and overlayfs
// are loaded, from the package of the kernel. There is no compiler, no shell
// and no other program in the guest but the test and the traced programs:
// tests that need a database, an interpreter or go itself are skipped. A guest
// leaves nothing behind but what it prints: no profiles, no coverage. Emulation
// is many times slower than the host, so tests that measure time mean nothing
// there. On s390x, BPF programs are interpreted.
package kernels
