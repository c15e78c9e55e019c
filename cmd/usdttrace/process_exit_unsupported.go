// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package main

import (
	"context"
	"errors"
)

// Only Linux has eBPF: elsewhere, sessions cannot be opened.

func watchExit(int) (func(context.Context), error) { return nil, errors.ErrUnsupported }
