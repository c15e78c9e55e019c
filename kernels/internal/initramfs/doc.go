// SPDX-License-Identifier: BSD-2-Clause

// Package initramfs writes the archive that a Linux kernel unpacks as its
// first file system: a cpio archive in the "newc" format, not compressed,
// because the kernel under emulation would spend longer on unpacking it than
// the host saves.
//
// An [Archive] collects what goes into it by the names the guest will see;
// [Archive.AddLibraries] then adds the dynamic loader and the shared libraries
// that the collected programs ask for; [Archive.WriteTo] writes it all, parents
// before children, in an order that does not change from run to run.
package initramfs
