// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"path"
	"strings"
)

// IsNamed reports whether a bare name means the file at a path: by the last
// element of the path, which may have further version numbers ("libc.so" and
// "python3" mean libc.so.6 and python3.11), or as linkers name it ("c" means
// libc.so.6).
func IsNamed(file, name string) bool {
	base := path.Base(file)
	is := func(name string) bool { return base == name || strings.HasPrefix(base, name+".") }
	return is(name) || !strings.HasPrefix(name, "lib") && is("lib"+name+".so")
}
