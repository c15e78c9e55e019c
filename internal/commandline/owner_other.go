// SPDX-License-Identifier: BSD-2-Clause

//go:build !unix

package commandline

import "io/fs"

const nonblocking = 0

func isOwn(fs.FileInfo) bool { return true }

func isReplaceable(fs.FileInfo) bool { return false }
