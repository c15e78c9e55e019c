// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/gousdt/gousdt/proc"
	"golang.org/x/sys/unix"
)

// watchExit returns a function that waits until a process has ended, or the
// context has.
func watchExit(pid int) (wait func(context.Context), err error) {
	fd, err := unix.PidfdOpen(pid, 0) // Linux 5.3
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL):
		// It has ended since it was checked.
		return nil, fmt.Errorf("process %d: %w", pid, proc.ErrGone)
	case err != nil:
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	return func(ctx context.Context) {
		defer unix.Close(fd)
		for ctx.Err() == nil {
			ready, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, exitPatience)
			if ready > 0 {
				return
			}
		}
	}, nil
}

// exitPatience is how many milliseconds may pass until it is noticed that the
// context has ended.
const exitPatience = 100
