// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-quicktest/qt"
)

func TestStrings(t *testing.T) {
	for _, test := range []struct{ behaviour, in, want string }{
		{"plain text", "query__start", `"query__start"`},
		{"quotation marks and backslashes", `a"b\c`, `"a\"b\\c"`},
		{"control characters", "\x00\x1b\x7f\r", `"\u0000\u001b\u007f\u000d"`},
		{"common controls in short", "a\n\tb", `"a\n\tb"`},
		{"8-bit controls", "\u009b2J", `"\u009b2J"`},
		{"changes of direction", "\u202e", `"\u202e"`},
		{"invisible characters beyond 16 bits", "\U000e0041", `"\udb40\udc41"`},
		{"printable text", "naïve 😀", `"naïve 😀"`},
		{"bytes that are not UTF-8", "a\xff\xc3", "\"a\ufffd\ufffd\""},
		{"HTML is not special", "<a>&", `"<a>&"`},
	} {
		qt.Check(t, qt.Equals(string(appendString(nil, test.in)), test.want),
			qt.Commentf(test.behaviour))
	}
}

func TestCommas(t *testing.T) {
	var j JSON
	j.Begin('{')
	j.Key("empty")
	j.Begin('[')
	j.End(']')
	j.Key("list")
	j.Begin('[')
	for range 2 {
		j.NewLine(1)
		j.Begin('{')
		j.Fields("u", uint64(1<<64-1))
		j.Fields("s", -1)
		j.Fields("n", nil)
		j.Fields("b", true)
		j.Fields("t", "x")
		j.Fields("f", 0.1)
		j.Fields("inf", math.Inf(1))
		j.Key("nan")
		j.Value(math.NaN())
		j.Key("least")
		j.Value(math.Inf(-1))
		j.Hex("h", "\x00\xff")
		j.Fields("o", 7)
		j.Fields("at", time.Date(2026, 1, 2, 3, 4, 5, 600, time.FixedZone("", 3600)))
		j.End('}')
	}
	j.End(']')
	j.End('}')
	j.EndDocument()
	const element = "\n" +
		` {"u":18446744073709551615,"s":-1,"n":null,"b":true,"t":"x","f":0.1,"inf":"Infinity","nan":"NaN","least":"-Infinity","h":"00ff","o":7,"at":"2026-01-02T02:04:05.0000006Z"}`
	qt.Assert(t, qt.Equals(string(j.Bytes()), `{"empty":[],"list":[`+element+`,`+element+"]}\n"))
}

func TestTimesAreThoseOfRFC3339(t *testing.T) {
	var j JSON
	for _, at := range []time.Time{
		time.Unix(0, 0), time.Unix(0, 1), time.Unix(0, 999_999_999), time.Unix(0, 120_000_000),
		time.Unix(-1, 5),
		time.Unix(1<<32, 100), time.Unix(1<<32, 0).In(time.FixedZone("", -3600)), {},
	} {
		j.Reset()
		j.Fields("at", at)
		qt.Check(t, qt.Equals(string(j.Bytes()), `"at":"`+at.UTC().Format(time.RFC3339Nano)+`"`))
	}
}

// What many objects have in common is built once.
func TestMembersOfAnotherBuilder(t *testing.T) {
	var common, j JSON
	common.Fields("a", "[")
	common.Key("list")
	common.Begin('[')
	j.Begin('{')
	j.Fields("n", 1)
	j.Members(common.Bytes())
	j.Int(2)
	j.Int(3)
	j.End(']')
	j.Members([]byte(`"b":"["`))
	j.Members([]byte(`"c":`))
	j.Int(4)
	qt.Assert(t, qt.Equals(string(j.Bytes()), `{"n":1,"a":"[","list":[2,3],"b":"[","c":4`))
}

// Whatever a file's strings hold, the JSON is valid, does not drive a terminal
// and lets the exact bytes be had back.
func FuzzText(f *testing.F) {
	for _, seed := range []string{"", "query__start", "\x1b[2J", "a\xffb", "\"\\", "\u2028",
		"\U000e0041", "\xed\xa0\x80"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var j JSON
		j.Begin('{')
		j.Fields("name", s)
		j.End('}')
		var got struct {
			Name string
			Hex  string `json:"name_hex"`
		}
		if err := json.Unmarshal(j.Bytes(), &got); err != nil {
			t.Fatalf("%q: %s: %v", s, j.Bytes(), err)
		}
		for _, r := range string(j.Bytes()) {
			if unicode.IsControl(r) {
				t.Fatalf("%q: %U survived", s, r)
			}
		}
		if utf8.ValidString(s) {
			if got.Name != s || got.Hex != "" {
				t.Fatalf("%q came back as %q %q", s, got.Name, got.Hex)
			}
			return
		}
		if back, err := hex.DecodeString(got.Hex); err != nil || string(back) != s {
			t.Fatalf("%q came back as %q: %v", s, back, err)
		}
		if got.Name != strings.ToValidUTF8(s,
			"\ufffd") && utf8.RuneCountInString(got.Name) != utf8.RuneCountInString(s) {
			t.Fatalf("%q is shown as %q", s, got.Name)
		}
	})
}
