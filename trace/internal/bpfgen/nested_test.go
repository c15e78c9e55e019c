// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace/internal/expr"
)

const testPaths = testSaved + 1

// nestedWorld adds up own times by path.
type nestedWorld struct {
	*callWorld
	rows, paths *bpfMap
}

func newNestedWorld(t *testing.T, k *testKernel) *nestedWorld {
	c := newCallWorld(t, k, rand.New(rand.NewPCG(3, 4)), "", expr.Term{Source: expr.TID})
	l := c.latency
	l.Nested, l.Path, l.Paths = true, &expr.Term{Source: expr.String, Max: 14}, testPaths
	c.addMap(testCalls, false, 16, l.StackSize(), 100)
	c.addMap(testZeros, true, 4, l.StackSize(), 1).valueSize = 0
	a := &Aggregation{Map: testRows, Latency: l, Sum: true, Value: &expr.Term{Source: expr.Self},
		Keys: []expr.Term{{Source: expr.Calls}}}
	c.plan.Aggregations = []*Aggregation{a}
	_, size := a.KeyLayout()
	w := &nestedWorld{callWorld: c, rows: c.addMap(testRows, false, size, a.ValueSize(), 100),
		paths: c.addMap(testPaths, false, 8, l.PathSize(), 10_000)}
	c.memory[userMemory] = []byte("main\x00price\x00sell\x00a long name of a function\x00")
	return w
}

// end passes an end, and returns the own time of the call and its path. Unknown
// own times are counted.
func (w *nestedWorld) end(tid uint32, now, sp uint64) (own uint64, path string, known bool) {
	clear(w.rows.values)
	w.hit(Ends{Done: 1}, tid, now, sp, 0)
	for key, value := range w.rows.values {
		qt.Assert(w.t, qt.Equals(w.load(value[:8]), 1))
		return w.load(value[8:16]), w.path(w.load([]byte(key)[:8])), true
	}
	return 0, "", false
}

func (w *nestedWorld) path(id uint64) string {
	if id == PathUnknown {
		return "?"
	}
	key := make([]byte, 8)
	w.store(key, id)
	value := w.paths.values[string(key)]
	qt.Assert(w.t, qt.IsNotNil(value))
	name, _ := KeyText(value[8:], w.latency.Path.Max)
	if around := w.load(value[:8]); around != PathNone {
		return w.path(around) + ";" + string(name)
	}
	return string(name)
}

// Functions that call each other at random have their own times, and are in the
// paths that they are called by. Where some are left by exceptions, an own time
// is right or not known; where calls are forgotten, those around are not known.
func TestOwnTimesAndPaths(t *testing.T) {
	names := []string{"main", "price", "sell", "a long name of a function"}
	type call struct {
		began, inner uint64 // inner: of what it called
		path         string
		lost         bool // forgotten by the kernel
	}
	sp := func(depth int) uint64 { return 1<<40 - 64*uint64(depth) }
	for _, k := range callKernels() {
		for _, test := range []struct {
			name        string
			deepest, up int // up of 100 hits are starts, while it rises
			thrown      int // of 100 ends leave further calls
		}{{"shallow", 20, 50, 0}, {"deep", nestedDepth + 40, 85, 0}, {"exceptions", 20, 50, 15}} {
			t.Run(k.name+"/"+test.name, func(t *testing.T) {
				w := newNestedWorld(t, k)
				random := rand.New(rand.NewPCG(31, 32))
				var running [2][]call
				var forgotten [2]int
				knownOwn, ended, unknownPaths := 0, 0, 0
				now := uint64(1000)
				for step := range 1000 + test.deepest*12 {
					now += 1 + random.Uint64N(50)
					tid := random.IntN(len(running))
					calls := running[tid]
					depth := len(calls)
					up := test.up
					if step/400%2 == 1 {
						up = 100 - up
					}
					if depth == 0 || depth < test.deepest && random.IntN(100) < up {
						n := random.IntN(len(names))
						at := userMemory + uint64(strings.Index(strings.Join(names, "\x00"), names[n]))
						w.hit(Ends{Start: 1}, uint32(tid), now, sp(depth), at)
						path := names[n][:min(len(names[n]), w.latency.Path.Max)]
						switch {
						case depth > 0 && !calls[depth-1].lost:
							path = calls[depth-1].path + ";" + path
						case forgotten[tid] > 0:
							path = "?;" + path
						}
						running[tid] = append(calls, call{began: now, path: path})
						if known := depth - forgotten[tid]; known == nestedDepth {
							running[tid][forgotten[tid]].lost = true
							forgotten[tid]++
						}
						continue
					}
					this := calls[depth-1]
					calls = calls[:depth-1]
					if random.IntN(100) < test.thrown && len(calls) > 0 { // this one has no end
						calls[len(calls)-1].inner += now - this.began
						this = calls[len(calls)-1]
						calls = calls[:len(calls)-1]
						now += 5
					}
					if len(calls) > 0 {
						calls[len(calls)-1].inner += now - this.began
					}
					running[tid] = calls
					own, path, known := w.end(uint32(tid), now, sp(len(calls)))
					ended++
					switch {
					case this.lost:
						qt.Assert(t, qt.IsFalse(known))
						forgotten[tid]--
						continue
					case !known:
						continue
					}
					knownOwn++
					qt.Assert(t, qt.Equals(own, now-this.began-this.inner))
					if test.thrown == 0 {
						qt.Assert(t, qt.Equals(path, this.path))
					}
					if strings.HasPrefix(path, "?") {
						unknownPaths++
					}
				}
				switch lost := int(w.counter(w.counters, CounterUnmatched)); test.name {
				case "shallow":
					qt.Check(t, qt.Equals(knownOwn, ended))
				case "deep":
					qt.Check(t, qt.Equals(knownOwn, ended-lost))
					qt.Check(t, qt.IsTrue(lost > 20 && unknownPaths > 20),
						qt.Commentf("%d %d", lost, unknownPaths))
				default:
					unknown := int(w.counter(w.counters, CounterSelf))
					qt.Check(t, qt.Equals(knownOwn+unknown, ended))
					qt.Check(t, qt.IsTrue(knownOwn > ended/4 && unknown > ended/20),
						qt.Commentf("%d of %d", knownOwn, ended))
				}
			})
		}
	}
}

// A path that finds no room is not known, nor is what is inside it.
func TestPathsWithoutRoom(t *testing.T) {
	w := newNestedWorld(t, &testKernels[slices.IndexFunc(testKernels,
		func(k testKernel) bool { return k.name == "x86-64" })])
	w.paths.max = 1
	for i := range uint64(3) {
		w.hit(Ends{Start: 1}, 1, 100+i, 1<<40-64*i, userMemory)
	}
	for i, want := range []string{"?", "?", "main"} {
		_, path, known := w.end(1, 200+uint64(i), 1<<40-64*uint64(2-i))
		qt.Check(t, qt.IsTrue(known))
		qt.Check(t, qt.Equals(path, want))
	}
}
