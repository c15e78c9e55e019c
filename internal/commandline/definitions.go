// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gousdt/gousdt/providers"
)

// NoNames is the word for --names that turns off all names.
const NoNames = "none"

// Definitions returns what is known of probes: the built-in definitions, those
// of the user's folder, which is gousdt/names in $XDG_CONFIG_HOME or ~/.config,
// and those of the files. Later ones take the place of earlier ones. With
// NoNames as the only file there are none.
func Definitions(files []string) (*providers.Definitions, error) {
	if len(files) == 1 && files[0] == NoNames {
		return nil, nil
	}
	known := providers.Builtin()
	var own []string
	if dir, err := os.UserConfigDir(); err == nil {
		// A malformed pattern is the only error.
		own, _ = filepath.Glob(filepath.Join(globQuoter.Replace(dir), "gousdt", "names", "*.d"))
	}
	for _, path := range append(own, files...) {
		source, err := os.ReadFile(path)
		if err == nil {
			err = known.Parse(path, source)
		}
		if err != nil {
			return nil, nameError(path, err)
		}
	}
	return known, nil
}

// nameError says how an error about a file of definitions came to be.
func nameError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--names %s: there is no such file", path)
	}
	return fmt.Errorf("names of arguments: %w", err)
}

// globQuoter quotes what a folder's name may have of a pattern's special bytes.
var globQuoter = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)
