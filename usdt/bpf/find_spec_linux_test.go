// SPDX-License-Identifier: BSD-2-Clause

//go:build amd64

package bpf_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"
)

func TestWithoutSpecEverythingIsAnError(t *testing.T) {
	check := func(t *testing.T, collection *ebpf.Collection) {
		got := readResult(t, collection)
		qt.Check(t, qt.Equals(got.cookie, 0))
		qt.Check(t, qt.Equals(got.count, noSpec))
		for i := range 14 {
			qt.Check(t, qt.Equals(got.errors[i], noSpec))
			qt.Check(t, qt.Equals(got.sizes[i], noSpec))
			qt.Check(t, qt.Equals(got.single[i], 0))
		}
		qt.Check(t, qt.Equals(got.all, [12]int64{}))
		qt.Check(t, qt.Equals(got.bareHits, 1))
	}
	t.Run("by cookie", func(t *testing.T) {
		collection := reader(t, true)
		tgt := startTarget(t)
		tgt.attach(t, collection, 256) // the number of specs
		tgt.hit(t)
		check(t, collection)
	})
	t.Run("attached without a cookie", func(t *testing.T) {
		collection := reader(t, true)
		tgt := startTarget(t)
		tgt.attach(t, collection, 0)
		putSpec(t, collection, 0, spec{Cookie: 55, Count: 1,
			Arguments: [12]argument{inRegister(rdi, 8, 0)}})
		tgt.hit(t)
		check(t, collection)
	})
	t.Run("by address", func(t *testing.T) {
		collection := reader(t, false)
		tgt := startTarget(t)
		tgt.attach(t, collection, 1)
		tgt.hit(t)
		check(t, collection)
	})
}

func TestSpecIsFoundByAddressWithoutCookies(t *testing.T) {
	collection := reader(t, false)
	tgt := startTarget(t)
	tgt.attach(t, collection, 1)
	putSpec(t, collection, 5, spec{Cookie: 55, Count: 1,
		Arguments: [12]argument{inRegister(rdi, 8, 0)}})
	qt.Assert(t, qt.IsNil(collection.Maps["__bpf_usdt_ip_to_spec_id"].Put(tgt.site, uint32(5))))
	tgt.hit(t)
	got := readResult(t, collection)
	qt.Check(t, qt.Equals(got.cookie, 55))
	qt.Check(t, qt.Equals(got.single[0], 5))
	qt.Check(t, qt.Equals(got.all[0], 5))
}
