// SPDX-License-Identifier: BSD-2-Clause

package stack_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/stack"
)

func TestProfileHasStacksValuesAndLabels(t *testing.T) {
	testprog.LeakCheck(t)
	symbolizer := stack.NewSymbolizer(nil)
	defer symbolizer.Close()
	target := start(t)
	addresses := []uint64{target.main, target.main + 8}
	p := stack.NewProfile(symbolizer, stack.ValueType{Type: "hits", Unit: "count"},
		stack.ValueType{Type: "time", Unit: "nanoseconds"})
	p.Add(t.Context(), target.PID, addresses, []int64{3, 300}, map[string]string{"comm": "x"})
	p.Add(t.Context(), target.PID, addresses[:1], []int64{1, 100}, nil)
	p.Add(t.Context(), target.PID, nil, []int64{2, 200}, nil)

	var file bytes.Buffer
	p.Start, p.Duration = time.Unix(1000, 0), time.Minute
	p.Period, p.PeriodType = 512, stack.ValueType{Type: "space", Unit: "bytes"}
	qt.Assert(t, qt.IsNil(p.Write(&file)))
	read, err := profile.Parse(&file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(read.TimeNanos, p.Start.UnixNano()))
	qt.Check(t, qt.Equals(read.DurationNanos, int64(time.Minute)))
	qt.Check(t, qt.Equals(read.DefaultSampleType, "time"))
	qt.Check(t, qt.Equals(read.Period, 512))
	qt.Check(t, qt.Equals(read.PeriodType.Type, "space"))
	qt.Check(t, qt.Equals(read.PeriodType.Unit, "bytes"))
	qt.Assert(t, qt.HasLen(read.Sample, 3))
	sample := read.Sample[0]
	qt.Check(t, qt.DeepEquals(sample.Value, []int64{3, 300}))
	qt.Check(t, qt.DeepEquals(sample.Label["comm"], []string{"x"}))
	qt.Check(t, qt.HasLen(sample.Label["process"], 0))
	qt.Assert(t, qt.HasLen(sample.Location, 2))
	qt.Check(t, qt.Equals(sample.Location[0].Line[0].Function.Name, "main"))
	qt.Check(t, qt.Equals(sample.Location[0].Line[0].Function, sample.Location[1].Line[0].Function))
	qt.Check(t, qt.Equals(sample.Location[1].Address, addresses[1]-1))
	qt.Check(t, qt.Equals(read.Sample[1].Location[0], sample.Location[0]),
		qt.Commentf("a place is there once"))
	qt.Check(t, qt.Equals(symbolizer.Counts(), stack.Counts{Frames: 4, NoFile: 1}))
}

// The format has no room for other bytes.
func TestProfileIsOfValidText(t *testing.T) {
	p := stack.NewProfile(stack.NewSymbolizer(nil), stack.ValueType{Type: "hits", Unit: "count"})
	p.Add(t.Context(), 1<<30, []uint64{1}, []int64{1}, map[string]string{"\xff": "a\xffb"})
	var file bytes.Buffer
	qt.Assert(t, qt.IsNil(p.Write(&file)))
	read, err := profile.Parse(&file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(read.Sample[0].Label["\uFFFD"], []string{"a\uFFFDb"}))
}

// The same program is somewhere else in each process.
func TestStacksOfTwoProcessesOfAFileAreOne(t *testing.T) {
	testprog.LeakCheck(t)
	symbolizer := stack.NewSymbolizer(nil)
	defer symbolizer.Close()
	first, second := start(t), start(t)
	addresses := func(p target) []uint64 { return []uint64{p.main, p.main + 8} }
	qt.Check(t, qt.Equals(symbolizer.Key(first.PID, addresses(first)),
		symbolizer.Key(second.PID, addresses(second))))
	qt.Check(t, qt.Not(qt.Equals(symbolizer.Key(first.PID, addresses(first)),
		symbolizer.Key(first.PID, []uint64{first.main + 8, first.main}))))
	qt.Check(t, qt.Not(qt.Equals(symbolizer.Key(first.PID, []uint64{1}),
		symbolizer.Key(second.PID, []uint64{1}))))

	for _, apart := range []bool{false, true} {
		p := stack.NewProfile(symbolizer, stack.ValueType{Type: "hits", Unit: "count"})
		p.ByProcess = apart
		p.Add(t.Context(), first.PID, addresses(first), []int64{3}, nil)
		p.Add(t.Context(), second.PID, addresses(second), []int64{4}, nil)
		p.Add(t.Context(), second.PID, addresses(second), []int64{5}, nil)
		var file bytes.Buffer
		qt.Assert(t, qt.IsNil(p.Write(&file)))
		read, err := profile.Parse(&file)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(read.TimeNanos, 0)) // it is not known
		if !apart {
			qt.Assert(t, qt.HasLen(read.Sample, 1))
			qt.Check(t, qt.DeepEquals(read.Sample[0].Value, []int64{12}))
			qt.Check(t, qt.Equals(read.Sample[0].Location[0].Address, first.main))
			continue
		}
		qt.Assert(t, qt.HasLen(read.Sample, 2))
		qt.Check(t, qt.DeepEquals(read.Sample[1].Value, []int64{9}))
		qt.Check(t, qt.Matches(read.Sample[1].Label["process"][0],
			fmt.Sprintf(`.* \(%d\)`, second.PID)))
	}
}

func TestSumsOfStacksAreLimited(t *testing.T) {
	p := stack.NewProfile(nil, stack.ValueType{Type: "arg0", Unit: "bytes"})
	for _, label := range []string{"\xfe", "\xff"} { // both become U+FFFD
		p.AddFrames(1, []stack.Frame{{Function: "f"}}, []int64{math.MaxInt64 - 1},
			map[string]string{"arg1": label})
	}
	var folded, page bytes.Buffer
	qt.Assert(t, qt.IsNil(p.WriteFolded(&folded)))
	qt.Check(t, qt.Equals(folded.String(), "arg1=\uFFFD;f 9223372036854775807\n"))
	qt.Assert(t, qt.IsNil(p.WriteFlameGraph(&page, "")))
	qt.Check(t, qt.Equals(strings.Count(page.String(), `"value":9223372036854775807`), 3))
}

func TestFlameGraphs(t *testing.T) {
	testprog.LeakCheck(t)
	symbolizer := stack.NewSymbolizer(nil)
	defer symbolizer.Close()
	target := start(t)
	p := stack.NewProfile(symbolizer, stack.ValueType{Type: "hits", Unit: "count"},
		stack.ValueType{Type: "arg0", Unit: "bytes"})
	p.Add(t.Context(), target.PID, []uint64{target.main, target.main + 8}, []int64{1, 30}, nil)
	p.Add(t.Context(), target.PID, []uint64{target.main + 4, target.main + 8}, []int64{1, 3}, nil)
	p.Add(t.Context(), target.PID, []uint64{target.main, 1}, []int64{1, 7},
		map[string]string{"comm": "</script>;\n"})
	p.Add(t.Context(), target.PID, []uint64{target.main}, []int64{1, -7}, nil)
	var folded, page bytes.Buffer
	qt.Assert(t, qt.IsNil(p.WriteFolded(&folded)))
	qt.Check(t, qt.Equals(folded.String(), "comm=</script>:?;[unknown];main 7\nmain;main 33\n"))
	qt.Check(t, qt.Equals(p.Len(), 2))

	qt.Assert(t, qt.IsNil(p.WriteFlameGraph(&page, "a <title>")))
	_, data, _ := strings.Cut(page.String(), `<script type="application/json" id="profile">`)
	data, _, _ = strings.Cut(data, "</script>")
	qt.Check(t,
		qt.Equals(data,
			`{"title":"a \u003ctitle\u003e","type":"arg0","unit":"bytes","note":"","root":{"name":"all","value":40,"children":[`+
				`{"name":"main","value":33,"children":[{"name":"main","value":33}]},`+
				`{"name":"comm=\u003c/script\u003e:?","value":7,"children":[{"name":"[unknown]","value":7,"children":[{"name":"main","value":7}]}]}]}}`))
	for _, mark := range []string{"RENDERER", "PROFILE"} {
		qt.Check(t, qt.Not(qt.StringContains(page.String(), mark)))
	}
}

// Stacks of equal names are added up before those below 0 are left out.
func TestNegativeStacksAreLeftOut(t *testing.T) {
	symbolizer := stack.NewSymbolizer(nil)
	defer symbolizer.Close()
	p := stack.NewProfile(symbolizer, stack.ValueType{Type: "sum", Unit: "count"})
	for line, value := range []int64{8, -5} { // two places of one function
		p.AddFrames(1, []stack.Frame{{Function: "both", Address: uint64(line)}}, []int64{value}, nil)
	}
	p.AddFrames(1, []stack.Frame{{Function: "less"}}, []int64{-7}, nil)
	p.AddFrames(1, []stack.Frame{{Function: "none"}}, []int64{0}, nil)
	var folded, page strings.Builder
	qt.Assert(t, qt.IsNil(p.WriteFolded(&folded)))
	qt.Check(t, qt.Equals(folded.String(), "both 3\n"))
	qt.Assert(t, qt.IsNil(p.WriteFlameGraph(&page, "t")))
	qt.Check(t, qt.StringContains(page.String(), `"both"`))
	qt.Check(t, qt.IsFalse(strings.Contains(page.String(), `"less"`)))
	qt.Check(t, qt.Equals(p.Len(), 1))
	qt.Check(t, qt.Equals(p.Negative(), 1))
}
