// SPDX-License-Identifier: BSD-2-Clause

package unwind

import (
	"sync"
	"time"
)

// KnownStacks has the kernel count hits whose stack has been walked before, in
// place of sending them with a copy of the stack. A hit is either sent or
// counted.
//
// The kernel follows a trail word by word (see [Trail]): in a node it
// reads a word, and the node that it goes on in is found by the number of the
// node and that word. The first is found by the process and the address of the
// instruction. Where there is no such node the event is sent. At the end of a
// trail the node counts the hit.
//
// A process may come to have other code at the same addresses. So all is
// learned anew from time to time.
type KnownStacks struct {
	Map KnownMap // a hash table; trace.EventOptions has it, too

	mu        sync.Mutex
	renewed   time.Time
	last      uint64     // the last number of a node
	now       generation // what the kernel finds
	before    generation // what it found before the last Renew
	totalHits uint64
}

// KnownMap is a map of the kernel, of KnownKey and KnownNode.
type KnownMap interface {
	Lookup(key, value any) error
	Put(key, value any) error
	Delete(key any) error
}

// KnownKey finds a node. Numbers of nodes are larger than those of processes.
type KnownKey struct{ Node, Value uint64 }

// KnownNode says what is read: the word at Offset from the stack pointer, or
// the frame pointer ([InFramePointer]). The bits of the stack pointer that are
// in Mask are subtracted from it. Next is 0 at the end of a trail.
type KnownNode struct {
	Next   uint64
	Offset int64
	Mask   uint64
	Count  uint64
}

// MaxKnownNodes is the size of the map, and MaxKnownWords the longest trail.
const (
	KnownKeySize, KnownNodeSize = 16, 32
	MaxKnownNodes               = 1 << 16
	MaxKnownWords               = 128
)

// ending is much longer than a program takes that has found a node.
const ending = 20 * time.Millisecond

const firstNode = 1 << 32

type generation struct {
	next map[KnownKey]uint64
	ends map[KnownKey]*knownEnd
	seen map[string]bool // the keys of stacks that came once
}

type knownEnd struct {
	counted uint64
	add     func(hits uint64)
}

// Know has hits with a trail counted from now on, if the stack, whose key is
// unique, has come before. add is called for those that were.
func (k *KnownStacks) Know(pid uint32, pc uint64, words []Word, stack string, add func(hits uint64)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := &k.now
	if g.next == nil {
		*g = generation{make(map[KnownKey]uint64), make(map[KnownKey]*knownEnd), make(map[string]bool)}
	}
	switch {
	case len(words) == 0 || len(words) > MaxKnownWords:
		return
	case time.Since(k.renewed) < ending: // the memory of a removed node could be used for another one
		return
	case len(g.next)+len(g.ends)+len(k.before.next)+len(k.before.ends)+len(words) >= MaxKnownNodes:
		return
	case !g.seen[stack]: // many never come again
		if len(g.seen) < MaxKnownNodes {
			g.seen[stack] = true
		}
		return
	}
	key := KnownKey{uint64(pid), pc}
	var path []KnownKey
	for _, w := range words {
		if g.ends[key] != nil {
			return // its code has changed
		}
		path = append(path, key)
		number := g.next[key]
		if number == 0 {
			k.last++
			number = firstNode + k.last
		}
		key = KnownKey{number, w.Value}
	}
	if g.ends[key] != nil || g.next[key] != 0 {
		return // such as a hit from before it was known
	}
	// From the end on, so that what is found leads to an end.
	if k.Map.Put(&key, &KnownNode{}) != nil {
		return
	}
	g.ends[key] = &knownEnd{add: add}
	for i := len(path) - 1; i >= 0; i-- {
		if next := key.Node; g.next[path[i]] == 0 {
			node := KnownNode{Next: next, Offset: words[i].Offset}
			if words[i].FromStack {
				node.Mask = ^uint64(0)
			}
			if k.Map.Put(&path[i], &node) != nil {
				return // what follows is not found
			}
			g.next[path[i]] = next
		}
		key = path[i]
	}
}

// Take calls add for the hits that have been counted since the last Take, and
// returns how many there have been since the beginning. A nil KnownStacks has
// none.
func (k *KnownStacks) Take() uint64 {
	if k == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.take(&k.before)
	k.take(&k.now)
	return k.totalHits
}

func (k *KnownStacks) take(g *generation) {
	for key, end := range g.ends {
		var node KnownNode
		if k.Map.Lookup(&key, &node) != nil || node.Count == end.counted {
			continue
		}
		hits := node.Count - end.counted
		end.counted = node.Count
		k.totalHits += hits
		end.add(hits)
	}
}

// Renew has everything learned anew. Programs that are running may still count
// until they end: these hits are taken later, and their nodes are removed with
// the next Renew.
func (k *KnownStacks) Renew() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.take(&k.before)
	for key := range k.before.next {
		_ = k.Map.Delete(&key) // it is there
	}
	for key := range k.before.ends {
		_ = k.Map.Delete(&key)
	}
	for key := range k.now.next {
		if key.Node < firstNode {
			_ = k.Map.Delete(&key)
			delete(k.now.next, key)
		}
	}
	k.before, k.now, k.renewed = k.now, generation{}, time.Now()
}
