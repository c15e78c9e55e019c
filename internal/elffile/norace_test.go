// SPDX-License-Identifier: BSD-2-Clause

//go:build !race

package elffile

// Under the race detector a sync.Pool forgets at random.
const hasRaceDetector = false
