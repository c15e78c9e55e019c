// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"
)

// fakeRing is a ring buffer into which a test writes as the kernel does.
type fakeRing struct {
	consumed, produced uint64 // first: they are aligned on 32-bit machines, too
	ringReader
}

func newFakeRing(size int) *fakeRing {
	r := &fakeRing{}
	r.file = (*os.File)(nil)
	r.consumer, r.producer = &r.consumed, &r.produced
	r.data, r.mask = make([]byte, 2*size), uint64(size)-1
	return r
}

// write appends a record of a byte, repeated.
func (r *fakeRing) write(value byte, length uint32, flags uint32) {
	r.writeBytes(bytes.Repeat([]byte{value}, int(length)), flags)
}

func (r *fakeRing) writeBytes(record []byte, flags uint32) {
	at := r.produced & r.mask
	size := r.mask + 1
	put := func(i uint64, b byte) { r.data[(at+i)%size], r.data[(at+i)%size+size] = b, b }
	for i, b := range binary.NativeEndian.AppendUint32(nil, uint32(len(record))|flags) {
		put(uint64(i), b)
	}
	for i, b := range record {
		put(recordHeader+uint64(i), b)
	}
	r.produced += recordHeader + uint64(len(record)+7)&^7
}

func TestRingMemory(t *testing.T) {
	r := newFakeRing(256)
	next := func(t *testing.T) []byte {
		t.Helper()
		record, ok := r.next()
		if !ok && r.refill() {
			record, ok = r.next()
		}
		qt.Assert(t, qt.IsTrue(ok))
		return record
	}
	nothing := func(t *testing.T) {
		t.Helper()
		_, ok := r.next()
		qt.Assert(t, qt.IsFalse(ok))
		qt.Assert(t, qt.IsFalse(r.refill()))
		_ = r.wait(time.Time{}, false) // a file that is nil cannot be waited for
		qt.Assert(t, qt.Equals(r.consumed, r.read),
			qt.Commentf("the kernel has to know before anybody waits"))
	}

	t.Run("is empty at first", nothing)
	t.Run("has records of any length, also across its end", func(t *testing.T) {
		for i := range byte(100) {
			length := uint32(i) % 60
			r.write(i, length, 0)
			r.write(i+1, 1, 0)
			b := next(t)
			qt.Assert(t, qt.HasLen(b, int(length)))
			for _, value := range b {
				qt.Assert(t, qt.Equals(value, i))
			}
			b = next(t)
			qt.Assert(t, qt.DeepEquals(b, []byte{i + 1}))
			nothing(t)
			qt.Assert(t, qt.IsTrue(r.read == r.produced))
		}
	})
	t.Run("tells the kernel late, but not of a record that is in use", func(t *testing.T) {
		for range 100 {
			for r.produced-r.consumed+16 <= r.mask+1 {
				r.write(1, 8, 0)
			}
			before := r.read
			next(t)
			qt.Assert(t, qt.IsTrue(r.consumed <= before))
			qt.Assert(t, qt.IsTrue(before-r.consumed < r.part()))
		}
		for r.read != r.produced {
			next(t)
		}
		nothing(t)
	})
	t.Run("leaves out what was discarded", func(t *testing.T) {
		r.write(1, 8, recordDiscarded)
		r.write(2, 8, 0)
		r.write(3, 8, recordDiscarded)
		qt.Assert(t, qt.Equals(next(t)[0], 2))
		nothing(t)
		qt.Assert(t, qt.Equals(r.consumed, r.produced))
	})
	t.Run("does not pass a record that is being written", func(t *testing.T) {
		r.write(4, 8, 0)
		at := r.produced & r.mask
		r.write(5, 8, recordBusy)
		r.write(6, 8, 0)
		qt.Assert(t, qt.Equals(next(t)[0], 4))
		nothing(t)
		qt.Assert(t, qt.IsFalse(r.read == r.produced))
		binary.NativeEndian.PutUint32(r.data[at:], 8)
		qt.Assert(t, qt.Equals(next(t)[0], 5))
		qt.Assert(t, qt.Equals(next(t)[0], 6))
		nothing(t)
		qt.Assert(t, qt.IsTrue(r.read == r.produced))
	})
	t.Run("has nothing once it has ended, and says how far it was read", func(t *testing.T) {
		r.write(7, 8, 0)
		r.write(8, 8, 0)
		next(t)
		r.used = true // there is nothing to unmap
		r.end()
		qt.Assert(t, qt.IsFalse(r.refill()))
		qt.Assert(t, qt.Equals(r.read, r.produced-16))
		r.done()
		qt.Assert(t, qt.Equals(r.consumed, r.read))
	})
}

// A reader naps only while records follow each other closely, for a time in
// which they do not fill the ring buffer.
func TestPace(t *testing.T) {
	now, read := time.Now(), uint64(0)
	naps := func(p *pace, every time.Duration, records int) (n int) {
		for range records {
			now, read = now.Add(every), read+64
			if p.naps(now, read) {
				n++
			}
		}
		return n
	}
	p := newPace(8<<20, 2)
	qt.Check(t, qt.Equals(p.nap, longestNap))
	qt.Check(t, qt.Equals(naps(&p, time.Second, 100), 0))
	qt.Check(t, qt.Equals(naps(&p, longestNap, 100), 0))
	qt.Check(t, qt.Equals(naps(&p, longestNap/2, shortWaits-1), 0),
		qt.Commentf("a few that follow each other"))
	qt.Check(t, qt.Equals(naps(&p, time.Second, 1), 0))
	qt.Check(t, qt.Equals(naps(&p, longestNap/2, shortWaits+100), 101))
	qt.Check(t, qt.Equals(naps(&p, 2*longestNap, 100), 100), qt.Commentf("a nap may take longer"))
	qt.Check(t, qt.IsFalse(p.naps(now.Add(longestNap), read)), qt.Commentf("no record came in a nap"))
	qt.Check(t, qt.Equals(naps(&p, 2*longestNap, 100), 0))

	small := newPace(64<<10, 16)
	qt.Check(t, qt.Equals(naps(&small, time.Microsecond, 100), 0),
		qt.Commentf("it would fill meanwhile"))
	qt.Check(t, qt.Equals(newPace(1<<20, 8).nap, 1<<16))
}

// There is room for what processors hold back, but not for any size.
func TestRoomForStarts(t *testing.T) {
	for _, test := range []struct {
		size, processors, want int
	}{
		{1024, 2, maxSaved + 2*heldBack},
		{1024, 64, maxSaved + 64*heldBack},
		{2048, 1024, 2 * maxSavedMemory / 2048},
		{16 << 10, 2, (maxSavedMemory + 2*heldBack*16<<10) / (16 << 10)},
		{100 << 10, 64, minSaved},
	} {
		qt.Check(t, qt.Equals(savedStarts(test.size, test.processors), test.want),
			qt.Commentf("%+v", test))
	}
}

// A large file that was attached once does not cost memory for good.
func TestSiteTableShrinksWhenNothingIsAttached(t *testing.T) {
	var table siteTable
	add := func(n int) []*Site {
		sites := make([]*Site, n)
		for i := range sites {
			sites[i] = &Site{}
			qt.Assert(t, qt.IsNil(table.add(sites[i])))
		}
		return sites
	}
	many, one := add(3*1000), add(1)
	table.remove(many)
	qt.Check(t, qt.Equals(table.get(one[0].id), one[0]))
	table.remove(one)
	qt.Check(t, qt.IsNil(table.sites.Load()))
	qt.Check(t, qt.HasLen(table.free, 0))
	again := add(1)
	qt.Check(t, qt.Equals(table.get(again[0].id), again[0]))
	qt.Check(t, qt.IsNil(table.get(1000)))
}

// A file system that makes an attachment wait does not hide losses.
func TestLossesWhileAnAttachmentWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all ledgers
		a := &Attachment{}
		all.of = map[*Attachment]*ledger{}
		all.enter(a, arriving, false)
		l := all.of[a]
		unmatched := func(n uint64) uint64 { return l.lost(lostCounts{unmatched: n}).unmatched }
		replaced := func(n uint64) uint64 { return l.lost(lostCounts{replaced: n}).replaced }

		time.Sleep(longestChange - time.Second)
		qt.Check(t, qt.Equals(unmatched(5), 0))
		qt.Check(t, qt.Equals(replaced(5), 5))
		late := *l
		time.Sleep(time.Second)
		qt.Check(t, qt.Equals(unmatched(5), 5))
		late.began = time.Now().Add(-time.Second)
		late.enter(there, lostCounts{unmatched: 5})
		qt.Check(t, qt.Equals(late.lost(lostCounts{unmatched: 6}).unmatched, 1))

		l.enter(there, lostCounts{unmatched: 5, replaced: 3})
		qt.Check(t, qt.Equals(unmatched(6), 6))
		l.enter(leaving, lostCounts{unmatched: 6, replaced: 3})
		qt.Check(t, qt.IsFalse(all.enter(a, leaving, false))) // another goroutine closes it, too
		qt.Check(t, qt.Equals(replaced(8), 3))
		qt.Check(t, qt.Equals(unmatched(8), 8))
		late = *l
		time.Sleep(longestChange)
		qt.Check(t, qt.Equals(replaced(8), 8))
		late.began = time.Now()
		late.enter(gone, lostCounts{replaced: 9})
		qt.Check(t, qt.Equals(late.lost(lostCounts{replaced: 10}).replaced, 4))
		l.enter(gone, lostCounts{replaced: 9})
		qt.Check(t, qt.Equals(replaced(10), 10))
	})
}
