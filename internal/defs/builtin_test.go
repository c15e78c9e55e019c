// SPDX-License-Identifier: BSD-2-Clause

package defs

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// The definitions of a file are found by its providers before the file is
// parsed.
func TestBuiltinByProvider(t *testing.T) {
	count := 0
	for _, file := range builtinFiles() {
		d := file.parsed()
		for key := range d.probes {
			qt.Assert(t, qt.Equals(builtinByProvider()[key.provider], file),
				qt.Commentf("%s: provider %s", file.name, key.provider))
			count++
		}
		for _, when := range d.pragmas["when"] { // of a probe that the file defines
			ok := false
			for key := range d.probes {
				ok = ok || when.pattern.Match(key.provider, key.name)
			}
			qt.Check(t, qt.IsTrue(ok), qt.Commentf("%s: %s", file.name, when.pattern))
		}
		for _, hint := range slices.Concat(d.pragmas["fires"], d.pragmas[missingBuild]) {
			provider, _, _ := strings.Cut(hint.pattern.String(), ":")
			qt.Assert(t, qt.Equals(builtinByProvider()[provider], file),
				qt.Commentf("%s: %s", file.name, hint.pattern))
			qt.Assert(t, qt.IsFalse(strings.ContainsAny(provider, `*?[{\`)),
				qt.Commentf("%s: %s", file.name, hint.pattern))
		}
	}
	qt.Assert(t, qt.IsTrue(count > 300), qt.Commentf("%d probes", count))
}

// A definition that replaces a built-in one is yielded in its place.
func TestProbesOnce(t *testing.T) {
	d := Builtin()
	before := len(all(t, d))
	qt.Assert(t,
		qt.IsNil(d.Parse("mine.d",
			[]byte("provider python { probe gc__done(long other); probe mine(); };"))))
	probes := all(t, d)
	qt.Assert(t, qt.HasLen(probes, before+1))
	qt.Assert(t, qt.Equals(probes[probeKey{"python", "gc__done", 1}].Arguments[0].Name, "other"))
	// What a caller changes does not change the definitions, which all share.
	for _, probe := range all(t, Builtin()) {
		clear(probe.Arguments)
	}
	probe, _ := Builtin().Probe("python", "function__entry", 3)
	call, _ := Builtin().Call(MustParsePairPattern("postgresql:statement"))
	clear(probe.Arguments)
	clear(call.Arguments)
	probe, _ = Builtin().Probe("python", "function__entry", 3)
	call, _ = Builtin().Call(MustParsePairPattern("postgresql:statement"))
	_, isCall := Builtin().Call(MustParsePairPattern("php:request"))
	qt.Check(t, qt.IsTrue(isCall)) // without what its end has: - of php-fpm
	qt.Check(t, qt.Equals(probe.Arguments[1].Name, "function"))
	qt.Check(t, qt.Equals(call.Arguments[0].Name, "query"))
	// Where programs of libvirt share numbers, a number has no name.
	probe, _ = Builtin().Probe("libvirt", "rpc_server_client_msg_rx", 8)
	qt.Check(t, qt.Equals(probe.Arguments[2].Values[0x20008086], "remote"))
	qt.Check(t, qt.Equals(probe.Arguments[4].Values[19], ""))
	qt.Check(t, qt.Equals(probe.Arguments[4].Values[20], "domain_get_vcpus"))
	qt.Check(t, qt.Equals(probe.Arguments[4].Values[212], "domain_get_state"))
	for range d.Probes() {
		break // as a loop may
	}
}

// all returns the probes of definitions, which are yielded once each.
func all(t *testing.T, d *Definitions) map[probeKey]Probe {
	t.Helper()
	probes := make(map[probeKey]Probe)
	for probe := range d.Probes() {
		key := probeKey{probe.Provider, probe.Name, len(probe.Arguments)}
		_, twice := probes[key]
		qt.Assert(t, qt.IsFalse(twice), qt.Commentf("%v", key))
		probes[key] = probe
	}
	return probes
}
