// SPDX-License-Identifier: BSD-2-Clause

// Package vm boots a kernel under QEMU's software emulation and runs tests in
// it.
//
// A [Guest] is put together on the host: [Guest.AddTest] adds a test binary
// with its package's testdata, in the place that the package has in the
// checkout, so that a test finds "testdata/x" and "../testdata/x" as it does on
// the host. [Guest.Run] packs it all into an initramfs with a first process of
// our own, boots, and returns how each test went.
//
// Some rules make this reliable:
//
//   - Emulation is asked for: /dev/kvm may be there and not work, and then it
//     would be a matter of luck which of the two is tested.
//   - There is one processor: emulating more takes longer, and tests of
//     uprobes gain nothing from it.
//   - The verdict is a line on the console, because QEMU ends with status 0
//     after a panic, too. A guest that says nothing has failed.
//   - Everything is in the initramfs, because the kernels for cloud machines
//     have few drivers built in.
package vm
