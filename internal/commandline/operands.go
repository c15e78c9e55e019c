// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/gousdt/gousdt/internal/ldso"
)

// IsPattern reports whether a word picks probes rather than names a file: it
// holds ':', '*', '?' or '[', and it does not start as a path does. A word that
// is a file in the current directory names that file, unless files are those of
// processes, whose current directory is another.
func IsPattern(word string, ofProcesses bool) bool {
	if !strings.ContainsAny(word, ":*?[") {
		return false
	}
	for _, prefix := range []string{"/", "./", "../"} {
		if strings.HasPrefix(word, prefix) {
			return false
		}
	}
	if ofProcesses {
		return true
	}
	_, err := os.Stat(word)
	return err != nil
}

// IsFileHere reports whether a bare name is that of a file in the current
// directory, which is meant before a library or program of that name.
func IsFileHere(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// IsMistaken reports whether a word that was taken for a file, program or
// library is none that can be found: it may have been meant for a probe.
func IsMistaken(word string) bool {
	if strings.ContainsAny(word, "/.") || IsFileHere(word) {
		return false
	}
	_, err := ldso.Find(word)
	return errors.Is(err, fs.ErrNotExist)
}
