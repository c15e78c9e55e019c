// SPDX-License-Identifier: BSD-2-Clause

package sys

import (
	"errors"
	"io"
	"sync"
)

// CloseTogether closes all closers at the same time: what each of them waits
// for, such as the kernel, is then waited for once.
func CloseTogether[C io.Closer](closers []C) error {
	errs := make([]error, len(closers))
	var wait sync.WaitGroup
	for i, c := range closers {
		wait.Go(func() { errs[i] = c.Close() })
	}
	wait.Wait()
	return errors.Join(errs...)
}
