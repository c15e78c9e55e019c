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

// The header is taken from this module. Where a distribution keeps <asm/...>
// apart for each machine, clang does not look there when it compiles for BPF;
// directories that are not there do no harm.

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64,s390x,riscv64 -type event -type program -type text Args args.bpf.c -- -Wall -Wextra -Werror -I../../usdt -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu -idirafter /usr/include/s390x-linux-gnu
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64,s390x,riscv64 -type hit Counts counts.bpf.c -- -Wall -Wextra -Werror -I../../usdt -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu -idirafter /usr/include/s390x-linux-gnu
