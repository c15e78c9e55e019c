// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/gousdt/gousdt/elfnote"
)

// The stacks stand for all hits, and name the build whose symbols are needed.
func TestProfiles(t *testing.T) {
	b := startBenchmark(t)
	s, end := started(t, map[string]any{
		"collection_interval": "100ms",
		"profiles": []any{map[string]any{"event": "postgresql:query__start",
			"where": ofTest}},
	})
	s.awaitAttached(b.File, "profiles")
	n := b.marked("-c", "2", "-T", "1") // long enough to be seen on a busy machine
	end()
	file, err := elfnote.Open(b.File)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	build, err := file.BuildID()
	qt.Assert(t, qt.IsNil(err))

	var hits uint64
	innermost := make(map[string]uint64)
	for _, sent := range s.profiles.AllProfiles() {
		tables := sent.Dictionary()
		text := func(i int32) string { return tables.StringTable().At(int(i)) }
		attribute := func(indices pcommon.Int32Slice) string {
			qt.Assert(t, qt.Equals(indices.Len(), 1))
			a := tables.AttributeTable().At(int(indices.At(0)))
			return text(a.KeyStrindex()) + "=" + a.Value().Str()
		}
		for _, resource := range sent.ResourceProfiles().All() {
			for _, scope := range resource.ScopeProfiles().All() {
				for _, p := range scope.Profiles().All() {
					qt.Check(t, qt.Equals(attribute(p.AttributeIndices()),
						"usdt.event=postgresql:query__start"))
					qt.Check(t, qt.Equals(text(p.SampleType().TypeStrindex()), "hits"))
					for _, sample := range p.Samples().All() {
						hits += uint64(sample.Values().At(0))
						stack := tables.StackTable().At(int(sample.StackIndex())).LocationIndices()
						qt.Assert(t, qt.IsTrue(stack.Len() > 0))
						l := tables.LocationTable().At(int(stack.At(0)))
						m := tables.MappingTable().At(int(l.MappingIndex()))
						place := fmt.Sprintf("%s %s", text(m.FilenameStrindex()),
							attribute(m.AttributeIndices()))
						innermost[place] += uint64(sample.Values().At(0))
					}
				}
			}
		}
	}
	qt.Check(t, qt.Equals(hits, n))
	qt.Check(t, qt.DeepEquals(innermost,
		map[string]uint64{b.File + " process.executable.build_id.gnu=" + build: n}))
}
