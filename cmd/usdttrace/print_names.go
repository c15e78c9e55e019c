// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/trace"
)

// maxNamePart is how many bytes are shown of a provider and of a probe's name:
// those of untrusted files may have megabytes.
const maxNamePart = 128

// probeName returns PROVIDER:NAME of a site, cut.
func probeName(site *trace.Site) string {
	return cutName(site.Provider) + ":" + cutName(site.Name)
}

func cutName(s string) string { return terminal.Cut(s, maxNamePart) }
