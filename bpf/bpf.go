// SPDX-License-Identifier: BSD-2-Clause

package bpf

import _ "embed"

//go:embed usdt.bpf.h
var header string

// Header returns the text of usdt.bpf.h. It belongs in a directory named bpf
// below an include directory, because programs include <bpf/usdt.bpf.h>.
func Header() string { return header }
