// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/gousdt/gousdt/elfnote"
)

// siteHash makes a fingerprint of what attaching goes by: the sites of a file.
type siteHash struct{ maphash.Hash }

func newSiteHash(seed maphash.Seed) *siteHash {
	h := new(siteHash)
	h.SetSeed(seed)
	return h
}

func (h *siteHash) add(file *elfnote.File, site *elfnote.Site) {
	var numbers [72]byte
	for i, n := range [...]uint64{
		uint64(len(site.Provider)), uint64(len(site.Name)), uint64(len(site.Arguments)),
		site.Location, site.Offset, site.Base, site.Semaphore, site.SemaphoreOffset,
		uint64(file.Kind()),
	} {
		binary.NativeEndian.PutUint64(numbers[i*8:], n)
	}
	h.Write(numbers[:])
	h.WriteString(site.Provider)
	h.WriteString(site.Name)
	h.WriteString(site.Arguments)
}

// fail adds what is wrong with the file, or with a note.
func (h *siteHash) fail(err error) { h.WriteString(err.Error()) }

// sum returns the fingerprint, which is not 0.
func (h *siteHash) sum() uint64 { return h.Sum64() | 1 }
