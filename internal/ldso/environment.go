// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"bytes"
	"io"
	"os"
	"strings"
)

// hostEnvironment is this process's environment as far as it may be trusted: a
// set-user-ID program must not let its caller choose what it opens.
func hostEnvironment(name string) string {
	if name == "LD_LIBRARY_PATH" && (os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid()) {
		return ""
	}
	return os.Getenv(name)
}

// maxEnvironment bounds how much of a process's environment is read. Linux
// allows some megabytes, of which kilobytes are used.
const maxEnvironment = 4 << 20

// environment returns the variables of a process as they were at its exec.
// Those that cannot be read are empty.
func environment(process string) func(name string) string {
	var all []byte
	if file, err := os.Open(process + "/environ"); err == nil {
		all, _ = io.ReadAll(io.LimitReader(file, maxEnvironment)) // what there is will do
		file.Close()
	}
	return func(name string) string {
		for variable := range bytes.SplitSeq(all, []byte{0}) {
			if value, ok := strings.CutPrefix(string(variable), name+"="); ok {
				return value
			}
		}
		return ""
	}
}
