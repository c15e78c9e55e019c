// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package main

import (
	"context"
	"errors"
	"os"
)

// command is a program that is run to be watched, on Linux.
type command struct {
	pid, tid int
	done     chan struct{}
}

func hold([]string, *os.File) (*command, error) { return nil, errors.ErrUnsupported }

func becomeCommand([]string) int { return exitError }

func (c *command) release() error { return errors.ErrUnsupported }

func (c *command) end() {}

func (c *command) exitStatus() int { return 0 }

func (c *command) failure() string { return "" }

func leaveLinks() {}

func holdUntilAlone() {}

// Only Linux has eBPF: elsewhere, sessions cannot be opened.

func watchExit(int) (func(context.Context), error) { return nil, errors.ErrUnsupported }

func watchTraps(context.Context, func(int, string)) error { return errors.ErrUnsupported }

func watchPaths(context.Context, []string) <-chan struct{} { return nil }

func copiesMetadata(*os.File) bool { return true }
