// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"github.com/gousdt/gousdt/internal/helptext"
	"github.com/gousdt/gousdt/internal/probenames"
)

// completer completes the command's words.
func completer() *helptext.Completer {
	numbers := []string{"pid", "tid", "uid", "gid", "cpu", "cgroup", "cookie", "arg0", "arg1",
		"arg2", "arg3"}
	keys := append([]string{
		"comm", "probe", "provider", "site", "container", "stack", "str(arg0)", "str(arg1)",
	}, numbers...)
	return probenames.Completer(usage, map[string][]string{
		"KEY":         keys,
		"TERM":        numbers,
		"TERM[=TERM]": numbers,
		"HOW":         {unwindDWARF, unwindFP},
		"MODE":        {"multi", "single", "single-ip"},
		"DIALECT":     {"sql", "mysql"},
		"COLUMN":      {"count", "average", "p50", "p90", "p99", "max", "total"},
	})
}
