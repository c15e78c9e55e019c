// SPDX-License-Identifier: BSD-2-Clause

// Package argcode generates BPF code that fetches the arguments of one site.
// What is known of the site beforehand costs nothing at a hit: constants are
// not fetched, registers are loaded from where the kernel saved them, and
// arguments that lie close together in memory are read by one helper call.
//
// Package trace makes its programs of it, and package usdt the readers of
// programs that it specialises.
package argcode
