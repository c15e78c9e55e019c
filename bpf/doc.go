// SPDX-License-Identifier: BSD-2-Clause

// Package bpf carries usdt.bpf.h, the C header with which a BPF program reads
// the arguments of the USDT probe that it runs on. The program is attached by
// package usdt of this module. There is nothing to call here at run time.
//
// # Compiling a program against the header
//
// The root of this module has to be among the include directories of clang,
// ahead of the system's, so that
//
//	#include <bpf/usdt.bpf.h>
//
// finds this header and not libbpf's of the same name. With bpf2go, whose
// -target also says which machine's registers the program will see:
//
//	//go:generate sh -c "bpf2go -target amd64,arm64 probe probe.bpf.c -- -I$(go list -f '{{.Dir}}' github.com/gousdt/gousdt/bpf)/.."
//
// The header itself includes <bpf/bpf_helpers.h> and <bpf/bpf_tracing.h> of
// libbpf (Debian: libbpf-dev), and it offers what libbpf's header offers:
// BPF_USDT, bpf_usdt_arg, bpf_usdt_arg_cnt, bpf_usdt_arg_size and
// bpf_usdt_cookie, described there. Programs written for libbpf's header
// compile unchanged.
//
// # Without a module cache
//
// "go mod vendor" copies only packages that are imported, so a program that
// vendors imports this one, in any file:
//
//	import _ "github.com/gousdt/gousdt/bpf"
//
// The linker drops the text from a program that does not call [Headers]. A tool
// that compiles elsewhere writes the files below an include directory:
//
//	err := os.CopyFS(filepath.Join(include, "bpf"), bpf.Headers())
package bpf
