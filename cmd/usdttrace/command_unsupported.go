// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package main

import "errors"

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
