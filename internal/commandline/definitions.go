// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gousdt/gousdt/providers"
)

// NoNames is the word for --names that turns off all names.
const NoNames = "none"

// maxDefinitions is how many bytes of a file of definitions are read: more than
// package providers takes, so that its error says what is wrong.
const maxDefinitions = 2 << 20

// Definitions returns the definitions of probes: the built-in ones, those of
// the user's folder, which is gousdt/names in $XDG_CONFIG_HOME or ~/.config,
// and those of the files. Later ones take the place of earlier ones. With
// NoNames as the only file there are none.
//
// What another user can write in the user's folder is not read: warn gets why.
func Definitions(files []string, warn func(format string, args ...any)) (
	*providers.Definitions, error,
) {
	if len(files) == 1 && files[0] == NoNames {
		return nil, nil
	}
	known := providers.Builtin()
	var own []string
	if dir, err := os.UserConfigDir(); err == nil {
		folder := filepath.Join(dir, "gousdt", "names")
		entries, _ := os.ReadDir(folder) // most users have none
		for _, entry := range entries {
			path := filepath.Join(folder, entry.Name())
			if !strings.HasSuffix(path, ".d") {
				continue
			}
			if err := onlyOwn(filepath.Dir(folder), folder, path); err != nil {
				warn("names of arguments: not read: %v", err)
				continue
			}
			own = append(own, path)
		}
	}
	for _, path := range append(own, files...) {
		source, err := readDefinitions(path)
		if err == nil {
			err = known.Parse(path, source)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("--names %s: there is no such file", path)
		} else if err != nil {
			return nil, fmt.Errorf("names of arguments: %w", err)
		}
	}
	return known, nil
}

// onlyOwn returns an error if another user than this one and root can change
// what a file or folder is.
func onlyOwn(paths ...string) error {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o002 != 0 || !isOwn(info) {
			return fmt.Errorf("%s: another user can write it", path)
		}
	}
	return nil
}

// readDefinitions reads a file, which has to be a regular one: a FIFO would be
// waited for, and a device read without end.
func readDefinitions(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|nonblocking, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: it is no regular file", path)
	}
	return io.ReadAll(io.LimitReader(file, maxDefinitions))
}
