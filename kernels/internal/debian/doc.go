// SPDX-License-Identifier: BSD-2-Clause

// Package debian fetches kernels, and QEMU, from Debian's archive.
//
// It asks the machine's own apt for everything: where the archive is (through
// whatever mirror and proxy the machine is set up with), whether an index is
// the one that Debian signed, and whether a package is the one that the index
// names. But apt runs with a state of its own, below the cache directory: the
// machine's lists and packages stay as they are, and no right to change them is
// needed. Nothing is installed: packages are unpacked into the cache.
//
// Which package holds a kernel changes with every update of Debian's, so no
// version is written down here: [Cache.Kernel] reads the index of a suite and
// takes the newest of the series.
package debian
