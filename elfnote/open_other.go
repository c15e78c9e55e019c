// SPDX-License-Identifier: BSD-2-Clause

//go:build !unix

package elfnote

const openFlags = 0
