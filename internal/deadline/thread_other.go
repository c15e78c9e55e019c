// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package deadline

import (
	"os"
	"time"
)

// thread is a thread whose times are not known.
type thread struct{}

func thisThread() thread { return thread{} }

func (thread) active(bool) time.Duration { return 0 }

func (thread) processorTime() time.Duration { return 0 }

// ProcessorTime is not known.
func ProcessorTime() time.Duration { return 0 }

// UserOf knows no users.
func UserOf(os.FileInfo) (uint32, bool) { return 0, false }
