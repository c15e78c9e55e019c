// SPDX-License-Identifier: BSD-2-Clause

//go:build !unix

package proc

import "io/fs"

func userOfInfo(fs.FileInfo) (uint32, bool) { return 0, false }
