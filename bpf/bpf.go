// SPDX-License-Identifier: BSD-2-Clause

package bpf

import "embed"

//go:embed *.bpf.h
var headers embed.FS

// Headers returns the files of the header: usdt.bpf.h, which programs include,
// and usdt_spec.bpf.h, which that includes from its own directory. They belong
// in a directory named bpf, below an include directory.
func Headers() embed.FS { return headers }
