// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package trace

import (
	"time"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

func threadBirth() int { return bpfgen.None }

func hasEnded(pid, tid int) bool { return false }

func commandSince(pid, tid int, moment time.Duration) (string, bool) { return "", true }
