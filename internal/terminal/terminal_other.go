// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package terminal

import "os"

// IsTerminal reports false: only on Linux are terminals recognised.
func IsTerminal(*os.File) bool { return false }

// Width returns 0, see IsTerminal.
func Width(*os.File) int { return 0 }
