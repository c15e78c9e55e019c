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

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
)

// NoNames is the word for --names that turns off all names.
const NoNames = "none"

// maxDefinitions is how many bytes of a file of definitions are read: more than
// package defs takes, so that its error says what is wrong.
const maxDefinitions = 2 << 20

// Definitions returns the definitions of probes: the built-in ones, those of
// the user's folder, which is gousdt/names in $XDG_CONFIG_HOME or ~/.config,
// and those of the files. Later ones take the place of earlier ones. With
// NoNames as the only file there are none.
//
// What another user can write in the user's folder is not read: warn gets why.
func Definitions(files []string, warn func(format string, args ...any)) (
	*defs.Definitions, error,
) {
	if len(files) == 1 && files[0] == NoNames {
		return nil, nil
	}
	known := defs.Builtin()
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

// Calls divides patterns into those of probes, and those that name a call of
// the definitions, as postgresql:statement does, or a pair of its probes, as
// python:gc does, but no probe. Each call is said by note.
func Calls(patterns []elfnote.Pattern, known *defs.Definitions, note func(text string)) (
	probes []elfnote.Pattern, calls []defs.PairPattern,
) {
	for _, p := range patterns {
		pair, err := defs.ParsePairPattern(p.String())
		ends := callEnds(pair, p, known)
		if err != nil || len(ends) == 0 {
			probes = append(probes, p)
			continue
		}
		calls = append(calls, pair)
		note(fmt.Sprintf("%s is a call, between the probes %s", p, strings.Join(ends, " or ")))
	}
	return probes, calls
}

// callEnds returns the pairs of probes that a pattern stands for, as START ..
// DONE, none if it is not the name of a call.
func callEnds(
	pair defs.PairPattern, p elfnote.Pattern, known *defs.Definitions,
) (ends []string) {
	if call, ok := known.Call(pair); ok {
		for _, p := range call.Pairs {
			ends = append(ends, p[0]+" .. "+p[1])
		}
		return ends
	}
	provider, name, ok := strings.Cut(p.String(), ":")
	if known == nil || !ok || strings.ContainsAny(name, `*?[\`) {
		return nil
	}
	var listing defs.Listing
	for probe := range known.Probes() {
		switch {
		case probe.Provider == provider && probe.Name == name:
			return nil
		case probe.Provider == provider:
			listing.Probes = append(listing.Probes,
				defs.FileProbe{Provider: provider, Name: probe.Name, Sites: make([]elfnote.Site, 1)})
		}
	}
	for _, pair := range known.Pairs(&listing, pair) {
		ends = append(ends, pair.Start.Name+" .. "+pair.Done.Name)
	}
	return ends
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
