// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/archive"
)

// listPath lists a file, or if it is a static library its members with probes.
// It returns how many probes it listed.
func (l *lister) listPath(path string, heading bool) (int, error) {
	if err := checkRegular(path); err != nil {
		return 0, err
	}
	file, err := elfnote.Open(path)
	if errors.Is(err, elfnote.ErrNotELF) {
		if opened, err := openScanned(path); err == nil {
			defer opened.Close()
			if archive.Is(opened) {
				return l.listArchive(path, opened)
			}
		}
	}
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return l.listOpened(&listing{path: path, heading: heading, elf: file})
}

// listArchive lists the members of a static library that have something to
// list. Those that cannot be read are reported, and hide no other.
func (l *lister) listArchive(path string, file io.ReaderAt) (found int, err error) {
	probes, skipped := false, 0
	for member, err := range archive.Members(file) {
		if err != nil {
			return found, fmt.Errorf("%s: %w", path, err)
		}
		n, has, err := l.listMember(path, member)
		found += n
		probes = probes || has
		switch {
		case errors.Is(err, errNoCode): // as that of all others
			return found, fmt.Errorf("%s: %w", path, errNoCode)
		case err != nil:
			skipped++
			l.WarnOf("members left out", "left out %v", err)
			l.printer.failed(failure{name: memberName(path, member.Name), err: err})
		}
	}
	switch {
	case skipped > 0:
		return found, fmt.Errorf("%s: %d of its members cannot be read", path, skipped)
	case found == 0 && !l.several() && probes:
		l.Warn("%s: no probe of its members matches %s (without a pattern, all are listed)",
			path, l.wanted())
	case found == 0 && !l.several():
		l.Warn("%s: no probes in its members", path)
	}
	return found, nil
}

// listMember lists a member of a static library. It reports whether the member
// has any probes, be they asked for or not.
func (l *lister) listMember(path string, member archive.Member) (found int, has bool, err error) {
	var contents io.ReaderAt = member.Contents
	if member.Contents == nil {
		at := filepath.Join(filepath.Dir(path), member.Name)
		if filepath.IsAbs(member.Name) {
			at = member.Name
		}
		if err := checkRegular(at); err != nil {
			return 0, false, err
		}
		opened, err := openScanned(at)
		if err != nil {
			return 0, false, fmt.Errorf("%s: %w", at, cause(err))
		}
		defer opened.Close()
		contents = opened
	}
	if !isELF(contents) {
		return 0, false, nil
	}
	name := memberName(path, member.Name)
	file, err := elfnote.NewFile(contents)
	if err != nil {
		return 0, false, fmt.Errorf("%s: %w", name, err)
	}
	defer file.Close()
	list, err := l.hasSomething(file)
	switch {
	case err != nil:
		return 0, false, fmt.Errorf("%s: %w", name, err)
	case !list:
		return 0, hasProbes(file), nil
	}
	found, err = l.listOpened(&listing{path: path, member: member.Name, heading: true, elf: file})
	return found, true, err
}

// memberName returns the name of a member of a static library, as linkers write
// it.
func memberName(path, member string) string { return path + "(" + member + ")" }

// isELF reports whether a file begins as ELF files do.
func isELF(r io.ReaderAt) bool {
	var magic [len(elf.ELFMAG)]byte
	_, err := r.ReadAt(magic[:], 0)
	return err == nil && string(magic[:]) == elf.ELFMAG
}
