// SPDX-License-Identifier: BSD-2-Clause

//go:build !unix

package elffile

const openFlags = 0
