// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"io"
	"os"
	"strings"
)

// maxMounts bounds what is read of a mount table. Container hosts have
// thousands of mounts of 200 bytes.
const maxMounts = 8 << 20

// hidePID returns how the proc file system at root hides processes: "noaccess"
// (1), "invisible" (2) or "ptraceable" (4), as mount options spell it, and ""
// if it does not, or if that cannot be read. A caller with CAP_SYS_PTRACE, or
// in the group that the mount option gid= names, sees all the same.
func hidePID(root string) string {
	file, err := os.Open(root + "/self/mounts")
	if err != nil {
		return ""
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxMounts))
	if err != nil {
		return ""
	}
	return hidePIDOption(text, root)
}

// hidePIDOption finds the option in a mount table, whose later lines cover the
// earlier.
func hidePIDOption(mounts []byte, root string) string {
	// Blanks and the like are octal there.
	root = strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(root)
	hide := ""
	for line := range bytes.Lines(mounts) {
		fields := bytes.Fields(line)
		if len(fields) < 4 || string(fields[1]) != root || string(fields[2]) != "proc" {
			continue
		}
		hide = ""
		for option := range bytes.SplitSeq(fields[3], []byte(",")) {
			if value, ok := bytes.CutPrefix(option, []byte("hidepid=")); ok {
				hide = string(value)
			}
		}
	}
	switch hide {
	case "0", "off": // spelled as numbers before Linux 5.8
		return ""
	case "1":
		return "noaccess"
	case "2":
		return "invisible"
	case "4":
		return "ptraceable"
	}
	return hide
}
