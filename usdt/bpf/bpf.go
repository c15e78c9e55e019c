// SPDX-License-Identifier: BSD-2-Clause

// Package bpf carries usdt.bpf.h, the C header with which a BPF program reads
// the arguments of the USDT probe that it runs on. The program is attached by
// package usdt of this module. There is nothing to call here at run time.
//
// # Compiling a program against the header
//
// The folder usdt of this module has to be among the include directories of
// clang, ahead of the system's, so that
//
//	#include <bpf/usdt.bpf.h>
//
// finds this header and not libbpf's of the same name. The command bpf2go
// beside this package runs that of cilium/ebpf with these directories. Its
// -target also says which machine's registers the program will see:
//
//	//go:generate go run github.com/gousdt/gousdt/usdt/bpf/bpf2go -target amd64,arm64 probe probe.bpf.c
//
// It adds -idirafter for Debian and Ubuntu, which keep <asm/types.h> in a
// folder for each machine. The header itself includes <bpf/bpf_helpers.h> and
// <bpf/bpf_tracing.h> of libbpf (Debian: libbpf-dev).
//
// # What the header offers
//
// Programs written for libbpf's header of the same name compile unchanged.
//
//	BPF_USDT(name, args...)                 defines a program with up to 12 typed parameters
//	int  bpf_usdt_arg(ctx, n, long *value)  reads argument n, counted from 0
//	int  bpf_usdt_arg_cnt(ctx)              how many arguments the probe has, at most 12
//	int  bpf_usdt_arg_size(ctx, n)          how many bytes argument n has
//	long bpf_usdt_cookie(ctx)               usdt.AttachOptions.Cookie, or the site's own cookie
//	int  bpf_usdt_arg_address(ctx, n, __u64 *address)  where argument n is in memory; not in libbpf
//
// A value is extended to 64 bits by the size and the sign that the probe has.
// A parameter of BPF_USDT whose argument cannot be read is 0; bpf_usdt_arg says
// why. The functions return a negative error, and then the value is 0:
//
//	-ESRCH       the program was not attached by package usdt
//	-ENOENT      the probe has no such argument, or it is past the 12th
//	-EOPNOTSUPP  the argument cannot be fetched at this site: Site.Args says why
//	-EFAULT      the argument is in memory that cannot be read now
//
// # Without a module cache
//
// "go mod vendor" copies only packages that are imported, so a program that
// vendors imports this one, in any file:
//
//	import _ "github.com/gousdt/gousdt/usdt/bpf"
//
// The linker drops the text from a program that does not call [Headers]. A tool
// that compiles elsewhere writes the files below an include directory:
//
//	err := os.CopyFS(filepath.Join(include, "bpf"), bpf.Headers())
package bpf

import "embed"

//go:embed *.bpf.h
var headers embed.FS

// Headers returns the files of the header: usdt.bpf.h, which programs include,
// and usdt_spec.bpf.h, which that includes from its own directory. They belong
// in a directory named bpf, below an include directory.
func Headers() embed.FS { return headers }
