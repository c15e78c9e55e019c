// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"math"
	"strconv"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestValueString(t *testing.T) {
	number := func(kind Kind, size uint8, bits uint64) Value {
		return Value{bits: bits, valueForm: valueForm{kind: kind, size: size, state: valuePresent}}
	}
	text := func(s string, state dataState) Value {
		return Value{bits: 16, data: s, text: true,
			valueForm: valueForm{size: 8, state: valuePresent, dataState: state}}
	}
	for _, test := range []struct {
		value Value
		want  string
	}{
		{Value{}, "?"},
		{Value{valueForm: valueForm{state: valueUnreadable}}, "<unreadable>"},
		{number(Signed, 1, math.MaxUint64), "-1"},
		{number(Unsigned, 8, math.MaxUint64), "18446744073709551615"},
		{number(Float, 4, uint64(math.Float32bits(0.1))), "0.1"},
		{number(Float, 8, math.Float64bits(0.1)), "0.1"},
		{number(Float, 8, math.Float64bits(math.Inf(-1))), "-Inf"},
		{text("", dataComplete), `""`},
		{text("a\tb\nc\"d\\e", dataComplete), `"a\tb\nc\"d\\e"`},
		{text("\x1b[31mred\x00\x7f", dataComplete), `"\x1b[31mred\x00\x7f"`},
		{text("日本 \u202e\u00ad", dataTruncated), `"日本 \u202e\u00ad"...`},
		{text("\xff\xfe", dataComplete), `"\xff\xfe"`},
		{text("", dataUnreadable), "16 <no address>"},
		{textValue([]byte("a \"b\" \x1b"), false), `a "b" \x1b`},
		{textValue([]byte("select"), true), "select..."},
	} {
		qt.Check(t, qt.Equals(test.value.String(), test.want))
	}
}

func TestValueStringCanBeReadBack(t *testing.T) {
	var all []byte
	for b := range 256 {
		all = append(all, byte(b))
	}
	for r := rune(0); r < 0x30000; r += 7 {
		all = append(all, string(r)...)
	}
	v := Value{data: string(all), text: true, valueForm: valueForm{state: valuePresent,
		dataState: dataComplete}}
	back, err := strconv.Unquote(v.String())
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(back, string(all)))
}

func TestNewValues(t *testing.T) {
	qt.Check(t, qt.Equals(ValueOf("a\x00b").String(), `a\x00b`))
	qt.Check(t, qt.Equals(ValueOf(int64(-1)).String(), "-1"))
	qt.Check(t, qt.Equals(ValueOf(uint64(1<<63)).String(), "9223372036854775808"))
}

func TestEventString(t *testing.T) {
	e := &Event{Probe: "postgresql:query__start", PID: 7}
	qt.Assert(t, qt.Equals(e.String(), "postgresql:query__start in process 7"))

	e.Command = "a\x1b[31m"
	e.Args = []Value{ValueOf(int64(-1)), {valueForm: valueForm{state: valueUnreadable}}}
	qt.Assert(t,
		qt.Equals(e.String(), `postgresql:query__start in process 7 (a\x1b[31m): -1, <unreadable>`))
}

func TestProgramName(t *testing.T) {
	for _, test := range []struct {
		probes [][2]string
		want   string
	}{
		{[][2]string{{"postgresql", "query__start"}}, "postg_query__st"},
		{[][2]string{{"postgresql", "sort"}}, "postgresql_sort"},
		{[][2]string{{"python", "gc__start"}}, "pytho_gc__start"},
		{[][2]string{{"libstdcxx", "throw"}}, "libstdcxx_throw"},
		{[][2]string{{"a", "b"}}, "a_b"},
		{[][2]string{{"postgresql", "query__start"}, {"postgresql", "query__done"}},
			"postgresq_query"},
		{[][2]string{{"hotspot", "gc__begin"}, {"hotspot", "thread__start"}}, "hotspot"},
		{[][2]string{{"one", "x"}, {"two", "y"}}, "usdt"},
		{[][2]string{{"gousdt::names", "a \"quoted\" name"}}, "gousd_a__quoted"},
		{[][2]string{{"日本", "語"}}, "usdt"},
		{[][2]string{{"", "averyveryverylongname"}}, "averyveryverylo"},
	} {
		qt.Check(t, qt.Equals(ProgramName(test.probes...), test.want))
	}
}
