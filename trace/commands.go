// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"bytes"
	"encoding/binary"
)

// maxCommands bounds the names of threads that are kept as strings. A machine
// has hundreds of them. A program that renames its threads at each request
// makes the table forget all names from time to time.
const maxCommands = 4096

// commandSize is how many bytes the kernel has for a name, with the terminator.
const commandSize = 16

// recentCommands is how many names are found without a look into the map.
const (
	recentBits     = 6
	recentCommands = 1 << recentBits
)

// commandTable has a string for each name of a thread, so that an event does
// not need a new one.
type commandTable struct {
	recent [recentCommands]recentCommand
	all    map[[commandSize]byte]string
}

// recentCommand is a name with the bytes that the kernel has sent, which may be
// anything behind the terminator.
type recentCommand struct {
	raw  [commandSize / 8]uint64
	name string
}

// name returns the name of which raw has the bytes.
func (t *commandTable) name(raw [commandSize / 8]uint64) string {
	const spread = 0x9e3779b97f4a7c15 // odd, and without a pattern
	entry := &t.recent[(raw[0]^raw[1])*spread>>(64-recentBits)]
	if entry.raw != raw {
		var key [commandSize]byte
		binary.NativeEndian.PutUint64(key[:], raw[0])
		binary.NativeEndian.PutUint64(key[8:], raw[1])
		*entry = recentCommand{raw, t.find(key)}
	}
	return entry.name
}

func (t *commandTable) find(key [commandSize]byte) string {
	end := bytes.IndexByte(key[:], 0)
	if end < 0 {
		end = len(key)
	}
	clear(key[end:]) // some kernels, 6.1 is one, leave there what was in memory
	if name, ok := t.all[key]; ok {
		return name
	}
	if t.all == nil || len(t.all) == maxCommands {
		t.all = make(map[[commandSize]byte]string)
	}
	name := string(key[:end])
	t.all[key] = name
	return name
}
