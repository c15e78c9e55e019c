// SPDX-License-Identifier: BSD-2-Clause

// Package jsontext builds JSON text piece by piece, for the commands. Unlike
// encoding/json it needs no document of a million sites in memory and no
// allocation for an event, and it loses no byte that is not UTF-8: the strings
// come from untrusted files and processes. Characters that a terminal might
// obey are escaped.
package jsontext
