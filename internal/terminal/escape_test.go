// SPDX-License-Identifier: BSD-2-Clause

package terminal

import (
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/go-quicktest/qt"
)

func TestEscape(t *testing.T) {
	for _, test := range []struct{ behaviour, in, want string }{
		{"a probe name stays", "query__start", "query__start"},
		{"an argument string stays", "8@-8(%rbp) -4@$17", "8@-8(%rbp) -4@$17"},
		{"nothing stays nothing", "", ""},
		{"printable text of any script stays", "naïve 探针", "naïve 探针"},
		{"an escape sequence is disarmed", "gc\x1b[2Jdone", `gc\x1b[2Jdone`},
		{"a title change is disarmed", "\x1b]0;pwned\a", `\x1b]0;pwned\a`},
		{"a carriage return cannot overwrite the line", "bad\rgood", `bad\rgood`},
		{"a new line cannot add a row", "a\nb", `a\nb`},
		{"a tab cannot shift a column", "a\tb", `a\tb`},
		{"delete is shown", "a\x7f", `a\x7f`},
		{"an 8-bit control introducer is disarmed", "\u009b2J", `\u009b2J`},
		{"a lone 8-bit byte is shown as a byte", "\x9b2J", `\x9b2J`},
		{"truncated UTF-8 is shown byte by byte", "\xe2\x82", `\xe2\x82`},
		{"an encoded replacement character is not taken for an error", "\ufffd", "\ufffd"},
		{"a change of direction is shown", "\u202egpj", `\u202egpj`},
		{"an invisible character is shown", "a\u200bb", `a\u200bb`},
		{"a wide blank is shown", "a\u3000b", `a\u3000b`},
		{"a backslash is doubled so that escapes are unambiguous", `a\x1bb`, `a\\x1bb`},
		{"quotation marks stay", `it's "quoted"`, `it's "quoted"`},
		{"a tag character beyond 16 bits is shown", "\U000e0041", `\U000e0041`},
	} {
		t.Run(test.behaviour, func(t *testing.T) {
			qt.Assert(t, qt.Equals(Escape(test.in), test.want))
		})
	}
}

func TestCleanKeepsEscapesThatAreThere(t *testing.T) {
	for in, want := range map[string]string{
		"no such file":            "no such file",
		`bad pattern "a\x1b"`:     `bad pattern "a\x1b"`,
		"open a\\\x1b[2J: none\\": `open a\\x1b[2J: none\`,
	} {
		qt.Check(t, qt.Equals(Clean(in), want))
	}
}

func TestCutKeepsWholeEscapes(t *testing.T) {
	for _, text := range []string{`ab\x1bcd`, `ab\u202ecd`, `ab\U000e0001cd`, `ab\ncd`, `ab\\cd`} {
		_, after, _ := strings.Cut(text, `\`)
		end := len(`ab\`) + len(after) - len("cd")
		for columns := range len(text) {
			want := text[:max(columns-3, 0)]
			if columns-3 > 2 && columns-3 < end {
				want = "ab"
			}
			qt.Check(t, qt.Equals(Cut(text, columns), want+"..."[:min(columns, 3)]))
		}
		qt.Check(t, qt.Equals(Cut(text, len(text)), text))
	}
}

func TestWrapBreaksBetweenWords(t *testing.T) {
	for columns, want := range map[int]string{
		0: "an\nold\nnaïve\nsentence", 6: "an old\nnaïve\nsentence", 8: "an old\nnaïve\nsentence",
		12: "an old naïve\nsentence", 80: "an old naïve sentence",
	} {
		qt.Check(t, qt.Equals(Wrap("an old naïve sentence", columns), want))
	}
}

func TestColumnsCountsCharacters(t *testing.T) {
	qt.Assert(t, qt.Equals(Columns("naïve"), 5))
	qt.Assert(t, qt.Equals(Columns(""), 0))
}

func TestEscapeOfAPlainNameDoesNotAllocate(t *testing.T) {
	qt.Assert(t, qt.Equals(testing.AllocsPerRun(100, func() { Escape("function__entry") }), 0))
}

func FuzzEscape(f *testing.F) {
	for _, seed := range []string{"query__start", "\x1b[31m", "\x9b", "\\", "\u202e", "\xff\xfe",
		"a\\\x00\"'"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		escaped := Escape(s)
		if !utf8.ValidString(escaped) {
			t.Fatalf("%q: not valid UTF-8: %q", s, escaped)
		}
		for _, r := range escaped {
			if unicode.IsControl(r) || !strconv.IsPrint(r) {
				t.Fatalf("%q: %U survived", s, r)
			}
		}
		// Nothing is lost: the escapes are a Go string's.
		back := make([]byte, 0, len(s))
		for rest := escaped; rest != ""; {
			r, multibyte, tail, err := strconv.UnquoteChar(rest, 0)
			if err != nil {
				t.Fatalf("%q: %q is no escape: %v", s, rest, err)
			}
			if multibyte {
				back = utf8.AppendRune(back, r)
			} else {
				back = append(back, byte(r))
			}
			rest = tail
		}
		if string(back) != s {
			t.Fatalf("%q came back as %q", s, back)
		}
	})
}
