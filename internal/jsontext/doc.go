// SPDX-License-Identifier: BSD-2-Clause

// Package jsontext builds JSON text piece by piece, for the commands. It is
// here beside encoding/json because a document of a million sites should not be
// held in memory, an event should cost no allocation, and no byte that is not
// UTF-8 should be lost: the strings come from files and processes of strangers.
// Whatever a terminal might obey is escaped.
package jsontext
