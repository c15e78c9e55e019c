// SPDX-License-Identifier: BSD-2-Clause

package defs_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
)

// TestBuiltinFitsSoftware compares the definitions with what is installed: a
// probe that has another number of arguments there would have no names.
func TestBuiltinFitsSoftware(t *testing.T) {
	known := defs.Builtin()
	for _, test := range []struct{ provider, files string }{
		{"postgresql", "/usr/lib/postgresql/*/bin/postgres"},
		{"python", "/usr/bin/python3"},
		{"hotspot", "/usr/lib/jvm/*/lib/server/libjvm.so"},
		{"libstdcxx", "/usr/lib/*/libstdc++.so.6"},
		{"ruby", "/usr/lib/*/libruby-*.so.[0-9].[0-9]"},
		{"php", "/usr/bin/php[0-9].[0-9]"},
		{"libvirt", "/usr/lib/*/libvirt.so.0"},
		{"sssd", "/usr/lib/*/sssd/*.so"},
		{"libc", "../docs/recipes/build/libc/usr/lib/*/libc.so.6"},
		{"rtld", "../docs/recipes/build/libc/usr/lib/*/ld*.so.*"},
	} {
		t.Run(test.provider, func(t *testing.T) {
			files, err := filepath.Glob(test.files)
			qt.Assert(t, qt.IsNil(err))
			if len(files) == 0 {
				t.Logf("not installed: %s", test.files)
			}
			for _, path := range files {
				file, err := elfnote.Open(path)
				if errors.Is(err, fs.ErrNotExist) {
					continue // a link that leads nowhere
				}
				qt.Assert(t, qt.IsNil(err))
				defer file.Close()
				for site, err := range file.Sites() {
					qt.Assert(t, qt.IsNil(err))
					if site.Provider != test.provider {
						continue
					}
					arguments := len(argspec.Decode(nil, file, site.Location, site.Arguments))
					if _, ok := known.Probe(site.Provider, site.Name, arguments); !ok &&
						arguments > 0 {
						t.Errorf("%s: %s:%s has %d arguments, and no such definition", path,
							site.Provider, site.Name, arguments)
					}
				}
			}
		})
	}
}
