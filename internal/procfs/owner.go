// SPDX-License-Identifier: BSD-2-Clause

package procfs

import (
	"os"
	"strconv"
	"strings"

	"github.com/gousdt/gousdt/container"
)

// maxOwnerDepth is how many directories of a cgroup's path count where no
// container and no user's slice is among them: what is below may be made by
// those who live in it.
const maxOwnerDepth = 4

// OwnerOf says who is to answer for what a process costs: its container, else
// its user's slice, else its cgroup and its user. Whoever may make cgroups or
// users of his own stays one owner.
func OwnerOf(root string, pid int) string {
	text, err := ReadCgroup(root, pid)
	if err != nil {
		text = ""
	}
	owner, whole := cgroupOwner(text)
	if whole {
		return owner
	}
	if uid, ok := userOf(Path(root, pid, "stat")); ok {
		owner += " uid " + strconv.FormatUint(uint64(uid), 10)
	}
	return owner
}

// cgroupOwner returns the part of the text of a cgroup file that says whose the
// cgroup is. whole reports whether the user adds nothing to that.
func cgroupOwner(text string) (owner string, whole bool) {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && len(parts[2]) > len(owner) {
			owner = parts[2] // with several hierarchies, the one that says most
		}
	}
	of, _ := container.Of(owner)
	depth, end := 0, 0
	for end < len(owner) {
		next := end + 1 + strings.IndexByte(owner[end+1:]+"/", '/')
		if owner[:next] == of.Cgroup || isUserSlice(owner[end+1:next]) {
			return owner[:next], true
		}
		end = next
		if depth++; depth == maxOwnerDepth {
			break
		}
	}
	return owner[:end], false
}

func isUserSlice(name string) bool {
	number, ok := strings.CutPrefix(name, "user-")
	if ok {
		number, ok = strings.CutSuffix(number, ".slice")
	}
	_, isNumber := ParseDecimal(number)
	return ok && isNumber
}

// userOf returns the user that a file of proc belongs to: that of the process,
// or root if the process may not be dumped.
func userOf(path string) (uint32, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, false
	}
	return UserOf(info)
}
