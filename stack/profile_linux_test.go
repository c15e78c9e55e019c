// SPDX-License-Identifier: BSD-2-Clause

package stack_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/libbpf"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

func TestProfileHasStacksValuesAndLabels(t *testing.T) {
	testprog.LeakCheck(t)
	symbolizer := stack.NewSymbolizer("")
	defer symbolizer.Close()
	target := start(t)
	addresses := []uint64{target.main, target.main + 8}
	p := stack.NewProfile(symbolizer, profile.ValueType{Type: "hits", Unit: "count"},
		profile.ValueType{Type: "time", Unit: "nanoseconds"})
	p.Add(t.Context(), target.PID, addresses, []int64{3, 300}, map[string]string{"comm": "x"})
	p.Add(t.Context(), target.PID, addresses[:1], []int64{1, 100}, nil)
	p.Add(t.Context(), target.PID, nil, []int64{2, 200}, nil)

	var file bytes.Buffer
	p.Start, p.Duration = time.Unix(1000, 0), time.Minute
	p.Period, p.PeriodType = 512, profile.ValueType{Type: "space", Unit: "bytes"}
	qt.Assert(t, qt.IsNil(p.Write(t.Context(), &file)))
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
	p := stack.NewProfile(stack.NewSymbolizer(""), profile.ValueType{Type: "hits", Unit: "count"})
	p.Add(t.Context(), 1<<30, []uint64{1}, []int64{1}, map[string]string{"\xff": "a\xffb"})
	var file bytes.Buffer
	qt.Assert(t, qt.IsNil(p.Write(t.Context(), &file)))
	read, err := profile.Parse(&file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(read.Sample[0].Label["\uFFFD"], []string{"a\uFFFDb"}))
}

// pprof takes what is in angle brackets for a template's parameters if the
// name of the function is that of the system, too.
func TestProfileKeepsNamesInBrackets(t *testing.T) {
	p := stack.NewProfile(stack.NewSymbolizer(""), profile.ValueType{Type: "hits", Unit: "count"})
	names := []string{"<module>", "a.py:<listcomp>", "Shop.<init>", "vector<int>::size", "main"}
	for _, name := range names {
		p.AddFrames(1<<30, []stack.Frame{{Function: name}}, []int64{1}, nil)
	}
	var file bytes.Buffer
	qt.Assert(t, qt.IsNil(p.Write(t.Context(), &file)))
	read, err := profile.Parse(&file)
	qt.Assert(t, qt.IsNil(err))
	for i, f := range read.Function {
		qt.Check(t, qt.Equals(f.Name, names[i]))
		qt.Check(t, qt.Equals(f.SystemName != f.Name, i < 3))
	}
}

// The same program is somewhere else in each process.
func TestStacksOfTwoProcessesOfAFileAreOne(t *testing.T) {
	testprog.LeakCheck(t)
	symbolizer := stack.NewSymbolizer("")
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
		p := stack.NewProfile(symbolizer, profile.ValueType{Type: "hits", Unit: "count"})
		p.ByProcess = apart
		p.Add(t.Context(), first.PID, addresses(first), []int64{3}, nil)
		p.Add(t.Context(), second.PID, addresses(second), []int64{4}, nil)
		p.Add(t.Context(), second.PID, addresses(second), []int64{5}, nil)
		var file bytes.Buffer
		qt.Assert(t, qt.IsNil(p.Write(t.Context(), &file)))
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
	p := stack.NewProfile(nil, profile.ValueType{Type: "arg0", Unit: "bytes"})
	for _, label := range []string{"\xfe", "\xff"} { // both become U+FFFD
		p.AddFrames(1, []stack.Frame{{Function: "f"}}, []int64{math.MaxInt64 - 1},
			map[string]string{"arg1": label})
	}
	var folded, page bytes.Buffer
	qt.Assert(t, qt.IsNil(p.WriteFolded(t.Context(), &folded)))
	qt.Check(t, qt.Equals(folded.String(), "arg1=\uFFFD;f 9223372036854775807\n"))
	qt.Assert(t, qt.IsNil(p.WriteFlameGraph(t.Context(), &page, "")))
	qt.Check(t, qt.Equals(strings.Count(page.String(), `"value":9223372036854775807`), 3))
}

func TestFlameGraphs(t *testing.T) {
	testprog.LeakCheck(t)
	symbolizer := stack.NewSymbolizer("")
	defer symbolizer.Close()
	target := start(t)
	p := stack.NewProfile(symbolizer, profile.ValueType{Type: "hits", Unit: "count"},
		profile.ValueType{Type: "arg0", Unit: "bytes"})
	p.Add(t.Context(), target.PID, []uint64{target.main, target.main + 8}, []int64{1, 30}, nil)
	p.Add(t.Context(), target.PID, []uint64{target.main + 4, target.main + 8}, []int64{1, 3}, nil)
	p.Add(t.Context(), target.PID, []uint64{target.main, 1}, []int64{1, 7},
		map[string]string{"comm": "</script>;\n"})
	p.Add(t.Context(), target.PID, []uint64{target.main}, []int64{1, -7}, nil)
	var folded, page bytes.Buffer
	qt.Assert(t, qt.IsNil(p.WriteFolded(t.Context(), &folded)))
	qt.Check(t, qt.Equals(folded.String(), "comm=</script>:?;[unknown];main 7\nmain;main 33\n"))
	shown, _ := p.Len(t.Context())
	qt.Check(t, qt.Equals(shown, 2))

	qt.Assert(t, qt.IsNil(p.WriteFlameGraph(t.Context(), &page, "a <title>")))
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
	symbolizer := stack.NewSymbolizer("")
	defer symbolizer.Close()
	p := stack.NewProfile(symbolizer, profile.ValueType{Type: "sum", Unit: "count"})
	for line, value := range []int64{8, -5} { // two places of one function
		p.AddFrames(1, []stack.Frame{{Function: "both", Address: uint64(line)}}, []int64{value}, nil)
	}
	p.AddFrames(1, []stack.Frame{{Function: "less"}}, []int64{-7}, nil)
	p.AddFrames(1, []stack.Frame{{Function: "none"}}, []int64{0}, nil)
	var folded, page strings.Builder
	qt.Assert(t, qt.IsNil(p.WriteFolded(t.Context(), &folded)))
	qt.Check(t, qt.Equals(folded.String(), "both 3\n"))
	qt.Assert(t, qt.IsNil(p.WriteFlameGraph(t.Context(), &page, "t")))
	qt.Check(t, qt.StringContains(page.String(), `"both"`))
	qt.Check(t, qt.IsFalse(strings.Contains(page.String(), `"less"`)))
	shown, negative := p.Len(t.Context())
	qt.Check(t, qt.Equals(shown, 1))
	qt.Check(t, qt.Equals(negative, 1))
}

// zeroValues are those of the exported types, and functions that take pointers
// or interfaces.
var zeroValues = []any{&argspec.Arg{}, &argspec.Encoding{}, argspec.Kind(99), &argspec.Register{},
	&proc.Cgroups{}, &proc.Container{}, &elfnote.File{}, &defs.Listing{},
	&elfnote.Pattern{}, &defs.FileProbe{}, &elfnote.Site{},
	proc.FS(""), &proc.Process{}, &proc.ProcessFile{},
	&trace.Stats{},
	&trace.Argument{}, &trace.Definitions{}, &stack.Counts{}, &stack.Frame{},
	&stack.Profile{}, &stack.Symbolizer{},
	&trace.Aggregation{}, &trace.Attachment{}, &trace.Bucket{},
	&trace.Capture{}, &trace.Event{}, &trace.EventOptions{}, &trace.Histogram{}, trace.Kind(99),
	&trace.Latency{}, &trace.Losses{}, trace.LostError(0), &trace.Row{}, &trace.Session{},
	&trace.SessionOptions{}, &trace.Site{}, &trace.Snapshot{}, &trace.Value{},
	&usdt.AttachOptions{}, &usdt.Link{}, &usdt.Manager{}, &usdt.ManagerOptions{}, usdt.Mode(99),
	&usdt.LimitError{}, &usdt.NotFoundError{},
	&usdt.Selection{}, &usdt.Site{}, &usdt.SiteError{}, &usdt.Target{},
	&watch.Changes[*usdt.Link]{}, &watch.Error{}, &watch.Limits{}, &watch.Options{},
	&watch.Part[*usdt.Link]{}, &watch.Stats{}, &watch.Watch{},
	stack.NewProfile(nil), stack.NewProfile(&stack.Symbolizer{}),
	named(nil), named(&stack.Symbolizer{Lines: true})}

// named returns a profile with stacks of a Symbolizer that names nothing.
func named(symbolizer *stack.Symbolizer) *stack.Profile {
	p := stack.NewProfile(symbolizer, profile.ValueType{Type: "hits", Unit: "count"})
	p.ByProcess = true
	p.Add(context.Background(), 1, []uint64{1}, []int64{1}, nil)
	p.AddFrames(1, nil, []int64{-1}, nil)
	return p
}

var takeNil = map[string]any{"usdt.NewManager": usdt.NewManager, "usdt.Select": usdt.Select,
	"libbpf.LoadCollectionSpecFromReader": libbpf.LoadCollectionSpecFromReader,
	"libbpf.AttachSections":               libbpf.AttachSections,
	"elfnote.NewFile":                     elfnote.NewFile, "argspec.Parse": argspec.Parse,
	"argspec.Decode": func() { argspec.Decode(nil, nil, 0, "4@counter(%rip) 4@%eax") },
	"of no file": func() {
		argspec.Decode(nil, (&usdt.Selection{}).File(), 0, "4@counter(%rip) 4@%eax")
	},
	"of a zero file": func() { argspec.Decode(nil, &elfnote.File{}, 0, "4@counter(%rip) 4@%eax") },
	"trace.New":      trace.New, "trace.Open": trace.Open,
	"a zero selection": func() { _, _ = usdt.Select(usdt.Target{Selection: &usdt.Selection{}}) },
	"a target's file":  func() { _, _ = usdt.Select(usdt.Target{ELF: &elfnote.File{}}) }}

// Methods of zero values return errors, or nothing. They do not panic.
func TestZeroValues(t *testing.T) {
	tested := make(map[string]bool)
	for _, value := range zeroValues {
		v := reflect.ValueOf(value)
		name, _, _ := strings.Cut(strings.TrimPrefix(v.Type().String(), "*"), "[")
		tested[name] = true
		for i := range v.NumMethod() {
			callWithZeroes(t, name+"."+v.Type().Method(i).Name, v.Method(i))
		}
	}
	for name, function := range takeNil {
		callWithZeroes(t, name, reflect.ValueOf(function))
	}
	list, err := os.ReadFile("../api/v1.txt")
	qt.Assert(t, qt.IsNil(err))
	for _, found := range regexp.MustCompile(`(?m)^(\w+): type (\w+)\S* (?:struct|uint\d+)$`).
		FindAllStringSubmatch(string(list), -1) {
		qt.Check(t, qt.IsTrue(tested[found[1]+"."+found[2]]), qt.Commentf("%s is not tested", found[0]))
	}
}

// callWithZeroes calls a function, and ranges over an iterator that it returns.
func callWithZeroes(t *testing.T, name string, f reflect.Value) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("%s panics: %v", name, r)
		}
	}()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	var args []reflect.Value
	for i := range f.Type().NumIn() {
		switch in := f.Type().In(i); {
		case f.Type().IsVariadic() && i == f.Type().NumIn()-1:
		case in == reflect.TypeFor[context.Context]():
			args = append(args, reflect.ValueOf(ended))
		case in == reflect.TypeFor[io.Writer]():
			args = append(args, reflect.ValueOf(io.Discard))
		default:
			args = append(args, reflect.Zero(in))
		}
	}
	for _, result := range f.Call(args) {
		switch {
		case result.Kind() != reflect.Func || result.IsNil():
		case result.Type().CanSeq2():
			for range result.Seq2() {
			}
		case result.Type().CanSeq():
			for range result.Seq() {
			}
		}
	}
}
