// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package proc

import "errors"

// errNoQuery is always the answer here.
var errNoQuery = errors.New("no PROCMAP_QUERY")

func (f *FS) queryMaps(int, func(*mapLine)) error { return errNoQuery }
