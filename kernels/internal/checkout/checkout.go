// SPDX-License-Identifier: BSD-2-Clause

// Package checkout finds the files of the repository that a command runs in.
package checkout

import (
	"errors"
	"os"
	"path/filepath"
)

// Module is the directory of this module in the repository.
const Module = "kernels"

// Find returns the directory of the repository that the working directory is
// in.
func Find() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, Module, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("the working directory is not in a checkout of gousdt")
		}
		dir = parent
	}
}
