// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package main

import "errors"

// mountProc is not called: only Linux has PID namespaces.
func mountProc() error { return errors.ErrUnsupported }
