// SPDX-License-Identifier: BSD-2-Clause

// Package testbpf holds the BPF programs that the integration tests of package
// usdt attach: the C sources, the objects compiled from them, and the Go code
// that bpf2go makes of both. It is generated and used as a user of this module
// would do it.
//
//   - [LoadArgs]: collect reads every argument by bpf_usdt_arg, with errors and
//     sizes; collect3 and collect12 read them by BPF_USDT; text3 copies a
//     string argument
//   - [LoadCounts]: count counts hits by cookie, process and thread; count_bare
//     by process, without looking the site up
package testbpf
