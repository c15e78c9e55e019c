// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// unpackKernel takes the kernel out of a package and leaves the modules, which
// are most of it: all that tests of uprobes and BPF need is built in.
func unpackKernel(ctx context.Context, deb, target string) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("unpacking %s: %w (apt-get install dpkg)", filepath.Base(deb), err)
	}
	found, err := extractKernel(out, target)
	// The program must not be left waiting for a reader.
	_, copyError := io.Copy(io.Discard, out)
	if waitError := cmd.Wait(); waitError != nil {
		return fmt.Errorf("unpacking %s: %w: %s", filepath.Base(deb), waitError, lastLines(stderr.String(), 3))
	}
	if err := errors.Join(err, copyError); err != nil {
		return fmt.Errorf("unpacking %s: %w", filepath.Base(deb), err)
	}
	if !found {
		return fmt.Errorf("unpacking %s: it has no kernel", filepath.Base(deb))
	}
	return nil
}

// extractKernel reads a package's files up to the kernel.
func extractKernel(r io.Reader, target string) (found bool, err error) {
	files := tar.NewReader(r)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if isKernelFile(h.Name) && h.Typeflag == tar.TypeReg {
			return true, writeFile(target, files)
		}
	}
}

// isKernelFile reports whether a file of a package is the kernel. It is called
// vmlinuz, or vmlinux where it is not compressed, and is in /boot or, in newer
// packages, below /usr/lib.
func isKernelFile(name string) bool {
	dir, base := path.Split(path.Clean("/" + name))
	if dir != "/boot/" && !strings.HasPrefix(dir, "/usr/lib/") {
		return false
	}
	base, _, _ = strings.Cut(base, "-")
	return base == "vmlinuz" || base == "vmlinux"
}

func writeFile(name string, r io.Reader) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
