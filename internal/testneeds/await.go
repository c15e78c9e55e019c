// SPDX-License-Identifier: BSD-2-Clause

package testneeds

import (
	"testing"
	"time"
)

// awaitEvery is how often Await asks at most.
const awaitEvery = time.Millisecond

// Await waits until something is so that nothing reports. The test fails if
// that takes longer than what usually takes a while may, see Patience.
func Await(t testing.TB, usual time.Duration, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience(usual)); ; {
		asked := time.Now()
		if is() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
		// Asking what takes long must not keep it from happening.
		time.Sleep(max(awaitEvery, time.Since(asked)))
	}
}
