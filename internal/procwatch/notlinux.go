// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package procwatch

import (
	"errors"
	"os"
)

// Records do not exist here.
type Records struct{}

// RecordAll is available on Linux only.
func RecordAll() (*Records, error) { return nil, errors.ErrUnsupported }

// RecordAtOnce is available on Linux only.
func RecordAtOnce() (*Records, error) { return nil, errors.ErrUnsupported }

// RecordFamily is available on Linux only.
func RecordFamily(int) (*Records, error) { return nil, errors.ErrUnsupported }

func recordEvents() (Recorder, error) { return nil, errors.ErrUnsupported }

// Wait is available on Linux only.
func (r *Records) Wait() bool { return false }

// Stop is available on Linux only.
func (r *Records) Stop() {}

// Each is available on Linux only.
func (r *Records) Each(func([]byte)) {}

// Close is available on Linux only.
func (r *Records) Close() {}

func sameInode(*os.File, []*os.File) int { return -1 }

func (*Mounts) trusts(string, uint64) bool { return false }
