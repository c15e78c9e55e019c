// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package main

import (
	"context"
	"errors"
)

// command is a program that is run to be watched, on Linux.
type command struct {
	argv   []string
	stdout uintptr
	pid    int
	execed func(pid int) error
	exits  func(pid int)
	done   chan struct{}
}

func (c *command) start() error { return errors.ErrUnsupported }

func (c *command) finish() {}

func (c *command) exitStatus() int { return 0 }

func (c *command) failure() string { return "" }

func leaveLinks() {}

func holdUntilAlone() {}

// Only Linux has eBPF: elsewhere, sessions cannot be opened.

func watchExit(int) (func(context.Context), error) { return nil, errors.ErrUnsupported }
