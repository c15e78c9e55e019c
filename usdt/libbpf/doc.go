// SPDX-License-Identifier: BSD-2-Clause

// Package libbpf loads objects that were compiled for libbpf, and attaches
// programs as libbpf does: by what their sections say. Package usdt does the
// rest.
//
// libbpf and cilium/ebpf take the same object files, but cilium/ebpf does not
// take all that libbpf's headers put into them:
//
//   - Weak symbols. libbpf takes a weak map for any other, cilium/ebpf refuses
//     it. In an object that is complete nothing is left that could override a
//     weak symbol, so here it becomes a global one.
//   - Hidden functions. To libbpf they are static: the kernel verifies them
//     with what their callers pass. To cilium/ebpf they are global: the kernel
//     verifies each alone, and refuses them.
//   - The variable LINUX_HAS_BPF_COOKIE, which libbpf sets to what the kernel
//     has. cilium/ebpf takes it for an option of the kernel's configuration.
//     Here it becomes a variable of a read-only section, which the caller sets
//     in the collection as any other.
//
// The object is changed before it is parsed, in memory: in the symbol table,
// and by a section that is added. No instruction is touched. What a symbol
// table cannot say is changed in the collection afterwards: that hidden
// functions are static, and that the variable is no option of the kernel.
package libbpf
