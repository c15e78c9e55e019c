// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package testneeds

// kernelRelease returns "": this is no Linux.
func kernelRelease() (string, error) { return "", nil }
