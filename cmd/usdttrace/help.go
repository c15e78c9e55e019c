// SPDX-License-Identifier: BSD-2-Clause

package main

import _ "embed"

// short is the text of -h: one screen with the most important.
//
//go:embed short.txt
var short string

// usage is the text of --help. The man page, the completion in shells and
// docs/usdttrace.md are made of it.
//
//go:embed help.txt
var usage string

// completions has the words that can stand for placeholders of the help.
func completions() map[string][]string {
	numbers := []string{"pid", "tid", "uid", "gid", "cpu", "cgroup", "cookie", "arg0", "arg1",
		"arg2", "arg3"}
	return map[string][]string{
		"KEY": append([]string{"comm", "probe", "provider", "site", "container", "stack",
			"str(arg0)", "str(arg1)"}, numbers...),
		"TERM":        numbers,
		"TERM[=TERM]": numbers,
		"HOW":         {unwindDWARF, unwindFP},
		"MODE":        modes,
		"WHEN":        colours,
		"DIALECT":     dialects,
		"COLUMN":      sortColumns,
	}
}
