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
// prints a table of all kernels and machines: which way of attaching was used,
// how many tests passed, failed, and were skipped and why. A kernel that cannot
// be fetched is reported as not run. To run some by hand:
//
//	kernels/run -only s390x/6.12 -v -run Attach ./usdt
//	kernels/run -only amd64=/boot/vmlinuz ./usdt
//
// A kernel of one's own needs these built in, as Debian's have: uprobes, BPF,
// tracefs, devtmpfs, tmpfs, cgroup2, an initramfs and the console of the board.
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
// GOUSDT_GUEST names the kernel that was asked for; other variables that start
// with GOUSDT_ are passed on.
//
// # What it needs
//
// A host like Debian, whose apt reaches Debian's archive; Go; cpio; cross
// compilers with their C libraries, which make kernels-setup installs, as root.
// QEMU 10 or newer is the host's, or is unpacked in the cache from the host's
// own suite or its backports. (With QEMU 7.2, traced programs on s390x die at
// random.)
//
// Kernels, QEMU, apt's indexes and what each machine last printed (logs/) are
// in "gousdt/kernels" in the user's cache directory, about 700 MB, which may be
// deleted. The archive is asked once a day; without it, the cache is used.
// Backports keep kernels whose modules are gone: there, tests that need FUSE or
// overlayfs are skipped.
//
// # Limits
//
// One processor, no network but the loopback interface, no disk; 1 GB of memory
// unless said otherwise; of modules only those of FUSE and overlayfs. There is
// no program but the test and the traced ones: tests that need a compiler, a
// shell, a database or an interpreter are skipped. Profiles and coverage are
// lost. Tests that measure time mean nothing there. On s390x, BPF programs are
// interpreted.
package kernels
