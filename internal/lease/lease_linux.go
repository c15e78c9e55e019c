// SPDX-License-Identifier: BSD-2-Clause

// Package lease notices that a file is about to be written to, and holds the
// writer up until what was attached to the file has been detached.
package lease

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Lease is a read lease of the kernel on a file (F_SETLEASE). A process that
// opens the file for writing, or truncates it, waits until the lease is
// returned, at most /proc/sys/fs/lease-break-time. Where the kernel gives none,
// the Lease only learns of writes once they have happened, by inotify.
type Lease struct {
	reason  error // why writers are not held up
	fd      int   // has the lease; -1 if there is none
	watch   int32 // of inotify; -1 if there is none
	written func()
}

// Take takes a lease on the file at a path, which may be that of a descriptor
// in /proc/self/fd. It calls written once, in a goroutine of its own, when the
// file is about to be written to, or has been. Without hold it never holds a
// writer up.
func Take(path string, hold bool, written func()) *Lease {
	l := &Lease{fd: -1, watch: -1, written: written, reason: errUnwanted}
	k := &theKeeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.start(); err != nil {
		l.reason = err
		return l
	}
	if hold {
		l.fd, l.reason = k.lease(path)
	}
	if l.reason != nil {
		if n, err := unix.InotifyAddWatch(k.inotify, path, unix.IN_MODIFY|unix.IN_CLOSE_WRITE); err == nil {
			l.watch = int32(n)
			k.watches[l.watch]++
		}
	}
	if l.fd >= 0 || l.watch >= 0 {
		k.leases[l] = struct{}{}
	}
	k.endIfUnused()
	return l
}

var errUnwanted = errors.New("no lease is wanted")

// Reason says why writers of the file are not held up. It is nil if they are.
func (l *Lease) Reason() error { return l.reason }

// Return gives the lease back: writers go on. It must be called once.
func (l *Lease) Return() {
	k := &theKeeper
	k.mu.Lock()
	delete(k.leases, l)
	if l.watch >= 0 {
		if k.watches[l.watch]--; k.watches[l.watch] == 0 {
			delete(k.watches, l.watch)
			_, _ = unix.InotifyRmWatch(k.inotify, uint32(l.watch))
		}
	}
	k.endIfUnused()
	k.mu.Unlock()
	if l.fd >= 0 {
		giveBack(l.fd)
	}
}

// giveBack ends a lease. Closing would not do while a child that is about to
// execute has the descriptor.
func giveBack(fd int) {
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	unix.Close(fd)
}

// Settled waits until no process has the file at a path open for writing, and
// reports whether that came within the patience. On file systems without leases
// it waits until the file has stopped changing.
func Settled(path string, patience time.Duration) bool {
	var last os.FileInfo
	for pause, until := time.Millisecond, time.Now().Add(patience); ; pause = min(2*pause, mostPause) {
		l := Take(path, true, func() {})
		reason := l.Reason()
		l.Return()
		if reason == nil {
			return true
		}
		if now, err := os.Stat(path); !errors.Is(reason, unix.EAGAIN) && err == nil {
			if pause == mostPause && last != nil && now.Size() == last.Size() &&
				now.ModTime().Equal(last.ModTime()) {
				return true
			}
			last = now
		}
		if time.Now().After(until) {
			return false
		}
		time.Sleep(pause)
	}
}

const (
	// mostPause is the longest time between two looks at a file that is being
	// written to.
	mostPause = 50 * time.Millisecond

	// broken is what the kernel sends to the keeper's thread when a lease is to
	// be given back: a real-time signal that nothing else is known to use.
	broken = unix.Signal(62)

	// lookAgain is how often the leases are looked at without a signal, in
	// milliseconds: the kernel drops signals if too many are queued.
	lookAgain = 1000
)

// keeper has the leases of this process. Its thread blocks the signal, in that
// thread alone, and reads it from a signalfd: no handler of the program ever
// runs for it. The thread is there as long as there is a lease.
type keeper struct {
	mu      sync.Mutex
	leases  map[*Lease]struct{}
	watches map[int32]int // of inotify, and how many leases each is for
	thread  int           // its ID, 0 if there is none
	signals int           // the signalfd
	inotify int           // -1 if there is none
}

// There is one for the process, because signals and inotify instances are the
// process's.
var theKeeper keeper

// start starts the thread if there is none.
func (k *keeper) start() error {
	if k.thread != 0 {
		return nil
	}
	k.leases, k.watches = make(map[*Lease]struct{}), make(map[int32]int)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := k.prepare()
		started <- err
		if err == nil {
			k.keep()
		}
	}()
	return <-started
}

func (k *keeper) prepare() error {
	var mask unix.Sigset_t
	bits := 8 * int(unsafe.Sizeof(mask.Val[0]))
	mask.Val[(int(broken)-1)/bits] |= 1 << ((int(broken) - 1) % bits)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &mask, nil); err != nil {
		return fmt.Errorf("blocking a signal: %w", err)
	}
	var err error
	if k.signals, err = unix.Signalfd(-1, &mask, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK); err != nil {
		return fmt.Errorf("signalfd: %w", err)
	}
	if k.inotify, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		k.inotify = -1
	}
	k.thread = unix.Gettid()
	return nil
}

// keep waits for signals and events until there is no lease any more.
func (k *keeper) keep() {
	var buffer [4096]byte
	for {
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(k.signals), Events: unix.POLLIN},
			{Fd: int32(k.inotify), Events: unix.POLLIN}}, lookAgain)
		for {
			if n, err := unix.Read(k.signals, buffer[:]); n <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		changed := k.changed(buffer[:])
		k.mu.Lock()
		for l := range k.leases {
			isWritten := changed[l.watch] || changed[overflow]
			if l.fd >= 0 {
				held, err := unix.FcntlInt(uintptr(l.fd), unix.F_GETLEASE, 0)
				isWritten = err != nil || held != unix.F_RDLCK
			}
			if isWritten {
				delete(k.leases, l)
				go l.written()
			}
		}
		if len(k.leases)+len(k.watches) == 0 {
			unix.Close(k.signals)
			if k.inotify >= 0 {
				unix.Close(k.inotify)
			}
			k.thread = 0
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
	}
}

// overflow is the watch of the event that events were lost.
const overflow = -2

// changed returns the watches of files that were written to.
func (k *keeper) changed(buffer []byte) map[int32]bool {
	changed := make(map[int32]bool)
	for k.inotify >= 0 {
		n, err := unix.Read(k.inotify, buffer)
		if n <= 0 && !errors.Is(err, unix.EINTR) {
			break
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			event := (*unix.InotifyEvent)(unsafe.Pointer(&buffer[at]))
			switch {
			case event.Mask&unix.IN_Q_OVERFLOW != 0:
				changed[overflow] = true
			case event.Mask&(unix.IN_MODIFY|unix.IN_CLOSE_WRITE) != 0:
				changed[event.Wd] = true
			}
			at += unix.SizeofInotifyEvent + int(event.Len)
		}
	}
	return changed
}

// endIfUnused wakes the thread if there is nothing to keep.
func (k *keeper) endIfUnused() {
	if k.thread != 0 && len(k.leases)+len(k.watches) == 0 {
		_ = unix.Tgkill(os.Getpid(), k.thread, broken)
	}
}

// lease opens a file and takes a lease on it. The kernel is told first whom to
// signal: else it would be the process.
func (k *keeper) lease(path string) (fd int, err error) {
	fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	const toThread = 0 // F_OWNER_TID
	owner := struct{ kind, id int32 }{toThread, int32(k.thread)}
	_, _, errno := unix.Syscall(unix.SYS_FCNTL, uintptr(fd), unix.F_SETOWN_EX,
		uintptr(unsafe.Pointer(&owner)))
	if errno != 0 {
		err = errno
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETSIG, int(broken))
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("taking a lease: %w", err)
	}
	return fd, nil
}
