// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/usdt/proc"
)

// watchPaths returns a channel that gets a value when another file may have
// come to stand at one of the paths, until the context ends.
func watchPaths(ctx context.Context, paths []string) <-chan struct{} {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	for _, path := range paths {
		for _, dir := range []string{filepath.Dir(path), filepath.Dir(canonical(path))} {
			// A file is complete when it is closed or renamed. One of overlayfs
			// is copied up when its attributes change.
			_, _ = unix.InotifyAddWatch(fd, dir, unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO|unix.IN_ATTRIB)
		}
	}
	notices, changed := os.NewFile(uintptr(fd), "inotify"), make(chan struct{}, 1)
	context.AfterFunc(ctx, func() { notices.Close() })
	go func() {
		names := make(map[string]bool)
		for _, path := range paths {
			names[filepath.Base(path)], names[filepath.Base(canonical(path))] = true, true
		}
		buffer := make([]byte, 64<<10)
		for {
			n, err := notices.Read(buffer)
			if err != nil {
				return
			}
			if !namesAny(buffer[:n], names) {
				continue
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	return changed
}

// namesAny reports whether one of the events of inotify is about a file of
// these names, or some were lost.
func namesAny(events []byte, names map[string]bool) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(events[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		name := unix.ByteSliceToString(events[unix.SizeofInotifyEvent:end])
		if names[name] || mask&unix.IN_Q_OVERFLOW != 0 {
			return true
		}
		events = events[end:]
	}
	return false
}

// copiesMetadata reports whether a file is on an overlayfs that copies up only
// the metadata when these change: then the data, and what is attached to it,
// stay where they are until the file is written to.
func copiesMetadata(file *os.File) bool {
	var of unix.Statx_t
	err := unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &of)
	mounts, err2 := os.ReadFile("/proc/self/mountinfo")
	if err != nil || err2 != nil {
		return true // attached twice, hits would count twice
	}
	for line := range strings.Lines(string(mounts)) {
		if number, rest, _ := strings.Cut(line, " "); number == strconv.FormatUint(of.Mnt_id, 10) {
			isDefault, _ := os.ReadFile("/sys/module/overlay/parameters/metacopy")
			return strings.Contains(rest, "metacopy=on") ||
				string(isDefault) == "Y\n" && !strings.Contains(rest, "metacopy=off")
		}
	}
	return true
}

// watchTraps calls died with each process that is ended by SIGTRAP, and its
// name, which is "" if it is not known, until the context ends. The kernel's
// process connector reports them to the initial network namespace, with
// CAP_NET_ADMIN. A filter lets nothing else through but processes that are
// about to dump core, as by SIGTRAP: when one has ended, its parent may have
// reaped it, and its name is gone.
func watchTraps(ctx context.Context, died func(pid int, command string)) error {
	// From linux/connector.h and linux/cn_proc.h: a message is a struct
	// nlmsghdr, a struct cn_msg and a struct proc_event.
	const (
		connector, group = 1, 1 // CN_IDX_PROC, CN_VAL_PROC
		messageAt        = unix.SizeofNlMsghdr
		eventAt          = messageAt + 20
		processAt        = eventAt + 20 // process_tgid
		statusAt         = eventAt + 24 // exit_code
		exited           = 0x80000000   // PROC_EVENT_EXIT
		dumps            = 0x40000000   // PROC_EVENT_COREDUMP
		listen           = 1            // PROC_CN_MCAST_LISTEN
		signalBits       = 0x7f
	)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_CONNECTOR)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	socket := os.NewFile(uintptr(fd), "process connector")
	network := func(v uint32) uint32 { // as a filter loads it
		return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, v))
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: eventAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: network(dumps), Jt: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: network(exited), Jf: 4},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: statusAt},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: network(signalBits)},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: network(uint32(unix.SIGTRAP)), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 16},
		{Code: unix.BPF_RET | unix.BPF_K},
	}
	order := binary.NativeEndian
	request := make([]byte, eventAt+4)
	order.PutUint32(request, uint32(len(request)))
	order.PutUint16(request[4:], unix.NLMSG_DONE)
	order.PutUint32(request[messageAt:], connector)
	order.PutUint32(request[messageAt+4:], group)
	order.PutUint16(request[messageAt+16:], 4) // the length of the operation
	order.PutUint32(request[eventAt:], listen)
	err = errors.Join(
		os.NewSyscallError("setsockopt", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET,
			unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})),
		os.NewSyscallError("bind", unix.Bind(fd,
			&unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: group})))
	if err == nil {
		_, err = socket.Write(request)
	}
	if err != nil {
		socket.Close()
		return err
	}
	context.AfterFunc(ctx, func() { socket.Close() })
	go func() {
		last, message := 0, make([]byte, 4096)
		var dumping proc.Process
		for {
			n, err := socket.Read(message)
			if errors.Is(err, unix.ENOBUFS) { // some were lost
				continue
			}
			if err != nil {
				return
			}
			pid := int(order.Uint32(message[processAt:]))
			switch {
			case n <= processAt+4:
			case order.Uint32(message[eventAt:]) == dumps:
				dumping, _ = proc.Find("", pid)
			case pid != last: // each thread ends so
				last = pid
				if dumping.PID != pid {
					dumping, _ = proc.Find("", pid)
				}
				died(pid, dumping.Command)
			}
		}
	}()
	return nil
}
