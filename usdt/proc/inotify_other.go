// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package proc

import "errors"

const inMade, inRemoved, inIsDir, inIgnored, inQOverflow = 0, 0, 0, 0, 0

type inotify struct{}

func newInotify() (*inotify, error) { return nil, errors.ErrUnsupported }

func (*inotify) add(string) (int32, error)        { return 0, errors.ErrUnsupported }
func (*inotify) read(func(int32, uint32, string)) {}
func (*inotify) Close() error                     { return nil }
func inode(string) (uint64, error)                { return 0, errors.ErrUnsupported }
