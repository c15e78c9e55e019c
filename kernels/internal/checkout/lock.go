// SPDX-License-Identifier: BSD-2-Clause

package checkout

import (
	"fmt"
	"os"
	"syscall"
)

// Lock waits until no other process has the lock on a file, which is created
// where it is missing, and takes it. The system gives it back when the process
// ends.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o666)
	if err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
