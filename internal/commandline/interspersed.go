// SPDX-License-Identifier: BSD-2-Clause

// Package commandline parses command lines as users of GNU programs write them.
package commandline

import (
	"errors"
	"flag"
	"strings"
)

// ParseInterspersed parses flags wherever they stand, as users of GNU programs
// expect, and returns the other words. After "--" there are no flags.
func ParseInterspersed(flags *flag.FlagSet, args []string) ([]string, error) {
	var operands []string
	for len(args) > 0 {
		if err := flags.Parse(args); err != nil {
			return nil, errors.New(strings.Replace(err.Error(), "flag provided but not defined: ", "no such flag: ", 1))
		}
		rest := flags.Args()
		if parsed := len(args) - len(rest); parsed > 0 && args[parsed-1] == "--" {
			return append(operands, rest...), nil
		}
		if len(rest) == 0 {
			break
		}
		operands, args = append(operands, rest[0]), rest[1:]
	}
	return operands, nil
}
