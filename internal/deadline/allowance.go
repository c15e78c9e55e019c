// SPDX-License-Identifier: BSD-2-Clause

package deadline

import (
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gousdt/gousdt/internal/procfs"
)

// A Rate is the part of the time that something may take.
type Rate struct {
	Full time.Duration // at once
	// Refill is the share of the time that it may take in the long run, such as
	// 0.25.
	Refill float64
}

// An Allowance is the time that something has taken, at a [Rate]. The zero
// value has taken nothing. Like Owners it is not safe for concurrent use.
type Allowance struct {
	taken time.Duration
	at    time.Time // when that was so
}

// Take notes that some time was taken.
func (a *Allowance) Take(r Rate, now time.Time, took time.Duration) {
	a.taken = a.Taken(r, now) + took
	a.at = now
}

// Taken returns the time that has been taken and is not refilled yet.
func (a Allowance) Taken(r Rate, now time.Time) time.Duration {
	if a.taken == 0 {
		return 0
	}
	return max(0, a.taken-time.Duration(float64(now.Sub(a.at))*r.Refill))
}

// Wait returns how long it is until more may be taken, 0 if that is now.
func (a Allowance) Wait(r Rate, now time.Time) time.Duration {
	return time.Duration(float64(max(0, a.Taken(r, now)-r.Full)) / r.Refill)
}

// maxOwners bounds the memory of the allowances.
const maxOwners = 4096

// Owners are the allowances of owners, all at the same rate.
type Owners map[string]Allowance

// Take notes that an owner took some time.
func (o *Owners) Take(owner string, r Rate, now time.Time, took time.Duration) {
	if *o == nil {
		*o = make(Owners)
	}
	a, known := (*o)[owner]
	if !known && len(*o) >= maxOwners {
		o.Tidy(r, now)
		if len(*o) >= maxOwners {
			clear(*o)
		}
	}
	a.Take(r, now, took)
	(*o)[owner] = a
}

// Tidy forgets the owners whose allowances are full again.
func (o Owners) Tidy(r Rate, now time.Time) {
	for owner, a := range o {
		if a.Taken(r, now) == 0 {
			delete(o, owner)
		}
	}
}

// maxOwnerDepth is the number of directories of a cgroup's path that count if
// no container and no user's slice is among them. The processes in a cgroup may
// be able to make others below it.
const maxOwnerDepth = 4

// OwnerOf returns the owner of a process. The processes of an owner share costs
// and limits. The owner is its container, else its user's slice, else its
// cgroup and its user. An owner that makes cgroups or users of its own stays
// one owner.
func OwnerOf(root string, pid int) string {
	text, _ := ReadCgroup(root, pid)
	owner, whole := cgroupOwner(text)
	if whole {
		return owner
	}
	if uid, ok := userOf(root, pid); ok {
		owner += " uid " + strconv.FormatUint(uid, 10)
	}
	return owner
}

// userOf returns the user who started a process.
func userOf(root string, pid int) (uid uint64, ok bool) {
	// A file of proc belongs to the user of the process, or to root if the
	// process may not be dumped, runs a setuid program or is ending.
	if info, err := os.Stat(procfs.Path(root, pid, "stat")); err == nil {
		if uid, ok := UserOf(info); ok && uid != 0 {
			return uint64(uid), true
		}
	}
	text, err := readFile(root, pid, "status", maxStatus)
	if err != nil {
		return 0, false
	}
	_, line, _ := strings.Cut(text, "\nUid:\t")
	real, _, _ := strings.Cut(line, "\t")
	return procfs.ParseDecimal(real)
}

// maxCgroup bounds the bytes read of /proc/PID/cgroup: up to a dozen
// hierarchies, whose paths are at most 4,096 bytes long each. The user is among
// the first bytes of /proc/PID/status, after a name of at most 64 bytes.
const (
	maxCgroup = 64 << 10
	maxStatus = 512
)

// ReadCgroup returns the text of /proc/PID/cgroup.
func ReadCgroup(root string, pid int) (string, error) {
	return readFile(root, pid, "cgroup", maxCgroup)
}

func readFile(root string, pid int, name string, most int64) (string, error) {
	file, err := procfs.OpenRaw(procfs.Path(root, pid, name))
	var text []byte
	if err == nil {
		defer file.Close()
		text, err = io.ReadAll(io.LimitReader(file, most))
	}
	if err != nil {
		return "", &procfs.Error{PID: pid, Op: "read " + name, Err: procfs.Classify(err)}
	}
	return string(text), nil
}

// cgroupOwner returns the owner by the text of a cgroup file. whole is false if
// the owner is that together with the user.
func cgroupOwner(text string) (owner string, whole bool) {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && len(parts[2]) > len(owner) {
			owner = parts[2] // with several hierarchies, the one that says most
		}
	}
	of, _ := ContainerOf(owner)
	end := 0
	for depth := 0; end < len(owner) && depth < maxOwnerDepth; depth++ {
		next := end + 1 + strings.IndexByte(owner[end+1:]+"/", '/')
		if owner[:next] == of.Cgroup || isUserSlice(owner[end+1:next]) {
			return owner[:next], true
		}
		end = next
	}
	return owner[:end], false
}

func isUserSlice(name string) bool {
	number, isUser := strings.CutPrefix(name, "user-")
	number, isSlice := strings.CutSuffix(number, ".slice")
	_, isNumber := procfs.ParseDecimal(number)
	return isUser && isSlice && isNumber
}
