// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"io"
	"sync"
	"time"
)

// closing closes files. To close a file is to wait for its file system, which
// somebody else may have stopped. So the files of each file system are closed
// by a goroutine of their own, which exists while there is something to close.
// The zero value is ready for use.
type closing struct {
	mu      sync.Mutex
	devices map[uint64]*closingDevice
}

// closingDevice is what is to be closed on one device.
type closingDevice struct {
	queue   []closingFile
	blocked bool // somebody has waited in vain: nobody waits any more
}

type closingFile struct {
	io.Closer
	closed chan struct{} // nil if nobody waits
}

// close closes a file on a device. It returns when that is done, or when it
// takes too long.
func (c *closing) close(device uint64, closer io.Closer) {
	file := closingFile{Closer: closer}
	c.mu.Lock()
	d := c.devices[device]
	if d == nil {
		if c.devices == nil {
			c.devices = make(map[uint64]*closingDevice)
		}
		d = &closingDevice{}
		c.devices[device] = d
		go c.work(device, d)
	}
	if !d.blocked {
		file.closed = make(chan struct{})
	}
	d.queue = append(d.queue, file)
	c.mu.Unlock()
	if file.closed == nil {
		return
	}
	timer := time.NewTimer(scanPatience)
	defer timer.Stop()
	select {
	case <-file.closed:
	case <-timer.C:
		c.mu.Lock()
		d.blocked = true
		c.mu.Unlock()
	}
}

// work closes what is in the queue of a device, until that is empty.
func (c *closing) work(device uint64, d *closingDevice) {
	for {
		c.mu.Lock()
		if len(d.queue) == 0 {
			delete(c.devices, device)
			c.mu.Unlock()
			return
		}
		file := d.queue[0]
		d.queue = d.queue[1:]
		c.mu.Unlock()
		_ = file.Close() // it was only read
		if file.closed != nil {
			close(file.closed)
		}
	}
}
