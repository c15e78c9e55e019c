// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ID finds out which file it is, without opening it, and remembers the answer.
// It goes by the mapping itself if the kernel allows that, which is certain.
// Otherwise it goes by the path in the process's mount namespace, where the
// inode number must be that of maps (except on overlayfs, where these numbers
// mean nothing).
//
// The error is an [*Error]. It wraps [ErrChanged] if the mapping has gone
// meanwhile, [ErrUnreachable], [ErrNotRegular], [ErrAccess] or [ErrGone].
func (m *MappedFile) ID() (FileID, error) {
	found, err := m.identify()
	if err != nil {
		return FileID{}, err
	}
	if m.id == (FileID{}) {
		m.id = found.FileID
		if merged, ok := found.merged(); ok && m.mounts.trusts(m.fs, m.reader, found.mount) {
			m.id = merged
		}
	}
	return m.id, nil
}

// identify is ID without merging, and with what changes when the file is
// written to.
func (m *MappedFile) identify() (identity, error) {
	if m.openedPath != "" {
		return m.found, nil
	}
	id, path, err := m.find(func(path string) (identity, error) { return identify(0, path) })
	if err != nil {
		return identity{}, m.wrap("identify", err)
	}
	m.found, m.openedPath = id, path
	return id, nil
}

// Open opens the file for reading. The descriptor stays valid when the file is
// deleted, the mapping removed, or the process ended; its name, by which it
// could be opened again, does not. The caller closes it.
//
// The errors are those of [MappedFile.ID]. If the file is not the one that ID
// found, the error is [ErrChanged].
func (m *MappedFile) Open() (*os.File, error) {
	var fd int
	id, path, err := m.find(func(path string) (identity, error) {
		// Devices are told from files before anything is opened.
		if _, err := identify(0, path); err != nil {
			return identity{}, err
		}
		var err error
		if fd, err = openFile(path); err != nil {
			return identity{}, err
		}
		id, err := identify(fd, "")
		if err != nil {
			unix.Close(fd)
		}
		return id, err
	})
	if err != nil {
		return nil, m.wrap("open", err)
	}
	switch {
	case m.openedPath == "":
		m.found, m.openedPath = id, path
	case id.FileID != m.found.FileID:
		unix.Close(fd)
		return nil, m.wrap("open", ErrChanged)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// find calls a function with one path to the file after another until that
// succeeds.
func (m *MappedFile) find(try func(path string) (identity, error)) (identity, string, error) {
	var direct error
	for _, mapping := range m.Mappings {
		path := m.mapFilesPath(mapping)
		id, err := try(path)
		if err == nil || errors.Is(err, ErrNotRegular) {
			return id, path, err
		}
		direct = err
		// Without the privilege the answer is the same for every mapping. One
		// that has gone may have left others, split from it or merged with it.
		if !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	if isLack(direct) {
		// Too few descriptors, or memory: it would be so by the path, too.
		return identity{}, "", direct
	}
	id, path, err := m.findByPath(try)
	switch {
	case err == nil || errors.Is(err, ErrNotRegular) || errors.Is(err, ErrGone) ||
		errors.Is(err, ErrAccess):
		return id, path, err
	case errors.Is(direct, unix.ENOENT) || errors.Is(direct, unix.ESRCH):
		// map_files works here, only the mapping is not there.
		return identity{}, "", fmt.Errorf("%w: %w", ErrChanged, direct)
	case errors.Is(err, ErrUnreachable):
		return identity{}, "", fmt.Errorf("%w: %w", err, direct)
	}
	return identity{}, "", err
}

// findByPath calls the function for the path that maps shows, below the
// process's root.
func (m *MappedFile) findByPath(try func(path string) (identity, error)) (identity, string, error) {
	if !m.isPath() {
		return identity{}, "", ErrUnreachable
	}
	root := m.fs.path(m.reader, "root")
	dir, err := openDirectory(root)
	if err != nil {
		return identity{}, "", classify(err)
	}
	defer unix.Close(dir)
	fd, err := openInRoot(dir, m.rawPath)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return identity{}, "", ErrUnreachable
	case err != nil:
		return identity{}, "", err
	}
	defer unix.Close(fd)
	// What the descriptor holds cannot be exchanged meanwhile.
	id, err := identify(fd, "")
	switch {
	case err != nil:
		return identity{}, "", err
	case !id.overlay && id.inode != m.inode:
		return identity{}, "", ErrUnreachable
	}
	id, err = try(descriptorPath(fd))
	return id, root + m.rawPath, err
}
