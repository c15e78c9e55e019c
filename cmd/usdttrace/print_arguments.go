// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"strconv"
	"strings"

	"github.com/gousdt/gousdt/providers"
	"github.com/gousdt/gousdt/trace"
)

// argumentOf returns what is known of an argument of a site, or nil.
func argumentOf(site *trace.Site, i int) *providers.Argument {
	if probe := site.Definition(); probe != nil {
		return &probe.Arguments[i]
	}
	return nil
}

func appendArgumentName(b []byte, definition *providers.Argument, i int) []byte {
	if definition != nil && definition.Name != "" {
		return append(b, definition.Name...)
	}
	return strconv.AppendInt(append(b, "arg"...), int64(i), 10)
}

// appendArgument appends a value: of a pointer the address, of an enumeration
// the name with the number.
func appendArgument(b []byte, v *trace.Value, definition *providers.Argument) []byte {
	if definition != nil && v.IsPresent() && v.Kind() != trace.Bytes {
		if data, _ := v.Data(); data == nil && !definition.IsText &&
			strings.HasSuffix(definition.Type, "*") {
			return strconv.AppendUint(append(b, "0x"...), v.Uint(), 16)
		}
		if name := definition.ValueName(v.Int()); name != "" {
			b = append(append(b, name...), '(')
			return append(v.AppendTo(b), ')')
		}
	}
	return v.AppendTo(b)
}

// isShownLength reports whether an argument is nothing but the length of a text
// that is shown.
func isShownLength(e *trace.Event, i int) bool {
	probe := e.Site.Definition()
	if probe == nil {
		return false
	}
	for j := range probe.Arguments {
		if probe.Arguments[j].Length == i {
			data, _ := e.Args[j].Data()
			return data != nil
		}
	}
	return false
}
