// SPDX-License-Identifier: BSD-2-Clause

package attaching

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
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

// Take takes a lease on an open file. It calls written once, in a goroutine of
// its own, when the file is about to be written to, or has been. Without hold
// it never holds a writer up.
//
// The descriptor is only for reading, and stays open until Return. Its open
// file description is used for no other lease, except by Take of the same
// descriptor.
func Take(fd int, hold bool, written func()) *Lease {
	l := &Lease{fd: -1, watch: -1, written: written}
	k := &theKeeper
	k.mu.Lock()
	if l.reason = k.start(); l.reason != nil {
		k.mu.Unlock()
		return l
	}
	k.taking++ // keeps the thread
	k.mu.Unlock()

	// The file system may be somebody else's, and not answer.
	if l.reason = errUnwanted; hold {
		l.reason = k.lease(fd)
	}
	watch, err := -1, error(nil)
	if l.reason != nil {
		watch, err = unix.InotifyAddWatch(k.inotify, fmt.Sprintf("/proc/self/fd/%d", fd),
			unix.IN_MODIFY|unix.IN_CLOSE_WRITE)
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	k.taking--
	switch {
	case l.reason == nil:
		l.fd = fd
		k.held[fd]++
		k.leases[l] = struct{}{}
	case err == nil:
		l.watch = int32(watch)
		k.watches[l.watch]++
		k.leases[l] = struct{}{}
	}
	k.endIfUnused()
	return l
}

var errUnwanted = errors.New("no lease is wanted")

// Reason says why writers of the file are not held up. It is nil if they are,
// and EAGAIN if a process had the file open for writing.
func (l *Lease) Reason() error { return l.reason }

// Return gives the lease back: writers go on. It must be called once.
func (l *Lease) Return() {
	k := &theKeeper
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.leases, l)
	if l.watch >= 0 {
		if k.watches[l.watch]--; k.watches[l.watch] == 0 {
			delete(k.watches, l.watch)
			_, _ = unix.InotifyRmWatch(k.inotify, uint32(l.watch))
		}
	}
	if l.fd >= 0 {
		if k.held[l.fd]--; k.held[l.fd] == 0 {
			delete(k.held, l.fd)
			// Closing would not do while a child that is about to execute has
			// the file.
			_, _ = unix.FcntlInt(uintptr(l.fd), unix.F_SETLEASE, unix.F_UNLCK)
		}
	}
	k.endIfUnused()
}

const (
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
	held    map[int]int   // descriptors, and how many leases each is for
	watches map[int32]int // likewise, of inotify
	taking  int           // calls of Take that go on
	thread  int           // its ID, 0 if there is none
	signals int           // the signalfd
	inotify int           // -1 if there is none
}

// There is one for the process, because signals and inotify instances are the
// process's.
var theKeeper keeper

func (k *keeper) start() error {
	if k.thread != 0 {
		return nil
	}
	k.leases = make(map[*Lease]struct{})
	k.held, k.watches = make(map[int]int), make(map[int32]int)
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

// keep waits until there is no lease any more.
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
		if !k.isUsed() {
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

func (k *keeper) isUsed() bool { return k.taking+len(k.held)+len(k.watches) > 0 }

func (k *keeper) endIfUnused() {
	if k.thread != 0 && !k.isUsed() {
		_ = unix.Tgkill(os.Getpid(), k.thread, broken)
	}
}

// lease takes a lease. The kernel is told first whom to signal: else it would
// be the process.
func (k *keeper) lease(fd int) error {
	const toThread = 0 // F_OWNER_TID
	owner := struct{ kind, id int32 }{toThread, int32(k.thread)}
	if _, _, errno := unix.Syscall(unix.SYS_FCNTL, uintptr(fd), unix.F_SETOWN_EX,
		uintptr(unsafe.Pointer(&owner))); errno != 0 {
		return fmt.Errorf("taking a lease: %w", errno)
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETSIG, int(broken))
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	}
	if err != nil {
		return fmt.Errorf("taking a lease: %w", err)
	}
	// Another lease by the descriptor may be on its way back.
	held, err := unix.FcntlInt(uintptr(fd), unix.F_GETLEASE, 0)
	if err == nil && held != unix.F_RDLCK {
		err = unix.EAGAIN
	}
	return err
}
