// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package proc

// mounts are for files that can be identified.
type mounts struct{}
