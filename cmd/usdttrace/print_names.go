// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"github.com/gousdt/gousdt/internal/cut"
	"github.com/gousdt/gousdt/trace"
)

// probeName returns PROVIDER:NAME of a site, cut.
func probeName(site *trace.Site) string {
	return cutName(site.Provider) + ":" + cutName(site.Name)
}

func cutName(s string) string { return cut.Name(s) }
