// SPDX-License-Identifier: BSD-2-Clause

package expr

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// String writes a condition with all its brackets, so that it can be read back.
func (n *Node) String() string {
	switch n.Op {
	case Not:
		return "!(" + n.Nodes[0].String() + ")"
	case And, Or:
		var parts []string
		for _, node := range n.Nodes {
			parts = append(parts, "("+node.String()+")")
		}
		return strings.Join(parts, " "+n.Op.String()+" ")
	default:
		return n.Left.String() + " " + n.Op.String() + " " + n.Right.String()
	}
}

func (t Term) String() string {
	s := ""
	switch t.Source {
	case Number:
		s = t.Number.String()
	case Text:
		s = strconv.Quote(t.Text)
	case Argument:
		s = t.place()
		if t.Start {
			s = "start." + s
		}
	case String:
		s = fmt.Sprintf("str(%s)", t.place())
		if t.Max > 0 {
			s = fmt.Sprintf("str(%s, %d)", t.place(), t.Max)
		}
		if t.Start {
			s = strings.Replace(s, "(", "(start.", 1)
		}
	default:
		for word, source := range words {
			if source == t.Source {
				s = word
			}
		}
	}
	if t.HasMask {
		s += fmt.Sprintf(" & %#x", t.Mask)
	}
	return s
}

func (t Term) place() string {
	if t.Name != "" {
		return t.Name
	}
	return fmt.Sprintf("arg%d", t.Index)
}

func (v Value) String() string {
	switch {
	case v.IsFloat:
		s := strconv.FormatFloat(v.Float, 'e', -1, 64)
		return s
	case v.Negative:
		return strconv.FormatInt(int64(v.Bits), 10)
	default:
		return strconv.FormatUint(v.Bits, 10)
	}
}

func TestConditionsAreUnderstood(t *testing.T) {
	for source, want := range map[string]string{
		`arg2 > 4096 && arg0 == "postgres"`:         `(arg2 > 4096) && (str(arg0) == "postgres")`,
		`arg0==1||arg1==2&&arg2==3`:                 `(arg0 == 1) || ((arg1 == 2) && (arg2 == 3))`,
		`(arg0 == 1 || arg1 == 2) && arg2 == 3`:     `((arg0 == 1) || (arg1 == 2)) && (arg2 == 3)`,
		`!arg0`:                                     `!(arg0 != 0)`,
		`!arg0 == 1`:                                `!(arg0 == 1)`,
		`!!(arg0 < -5)`:                             `!(!(arg0 < -5))`,
		`arg0 & 0xf0 == 0x10`:                       `arg0 & 0xf0 == 16`,
		`arg0 & 0xf0`:                               `arg0 & 0xf0 != 0`,
		`-1 <= arg255`:                              `-1 <= arg255`,
		`arg0 == 18446744073709551615`:              `arg0 == 18446744073709551615`,
		`arg0 == -9223372036854775808`:              `arg0 == -9223372036854775808`,
		`arg0 == 0x_ff`:                             `arg0 == 255`,
		`arg0 == 0b101 && arg0 == 0o17`:             `(arg0 == 5) && (arg0 == 15)`,
		`arg0 > 1.5 || arg0 < -2e-3 || arg0 == 1e3`: `(arg0 > 1.5e+00) || (arg0 < -2e-03) || (arg0 == 1e+03)`,
		"\tpid==1\n&&\rtid!=2":                      `(pid == 1) && (tid != 2)`,
		`comm == "a\"b\\\x01\n"`:                    `comm == "a\"b\\\x01\n"`,
		`"x" != str(arg3, 12)`:                      `"x" != str(arg3, 12)`,
		`"x" == arg3`:                               `"x" == str(arg3)`,
		`provider == "p" && probe == "q"`:           `(provider == "p") && (probe == "q")`,
		`uid == 0 && gid == 0 && cpu < 4 && cookie`: `(uid == 0) && (gid == 0) && (cpu < 4) && (cookie != 0)`,
		`3 & 1 == arg0`:                             `1 == arg0`,
		`arg0 < arg1`:                               `arg0 < arg1`,
		`duration > 5ms && start.arg1 == 2`:         `(duration > 5000000) && (start.arg1 == 2)`,
		`duration == 0`:                             `duration == 0`,
		`duration >= 1m30s`:                         `duration >= 90000000000`,
		`start.arg0 == "x" || start.arg1`:           `(str(start.arg0) == "x") || (start.arg1 != 0)`,
		`start.arg0 < start.arg1`:                   `start.arg0 < start.arg1`,
		`arg0<-1&&arg1>-1.5`:                        `(arg0 < -1) && (arg1 > -1.5e+00)`,
		`global.a_1 & 3 == 1`:                       `global.a_1 & 0x3 == 1`,
		`global.a == "x" && str(start.global.b,3) != "x"`: `(str(global.a) == "x") && ` +
			`(str(start.global.b, 3) != "x")`,
		`start.global.type`: `start.global.type != 0`,
		`global.a->b.c->d & 3 == 1 && str(global.a->b, 3) != "x"`: `(global.a->b.c->d & 0x3 == 1) && ` +
			`(str(global.a->b, 3) != "x")`,
		`arg0->fd == -1 && str(arg1->a.b->c, 3) != "x"`: `(arg0->fd == -1) && ` +
			`(str(arg1->a.b->c, 3) != "x")`,
		`start.arg0->type == "x"`:         `str(start.arg0->type) == "x"`,
		`arg0 -> a&1`:                     `arg0->a & 0x1 != 0`,
		`arg0>-1`:                         `arg0 > -1`,
		`arg0 == .5`:                      `arg0 == 5e-01`,
		`((((((((((arg0 >= pid))))))))))`: `arg0 >= pid`,
		strings.Repeat("!", 60) + "(arg0 == arg1)": strings.Repeat("!(", 60) +
			"arg0 == arg1" + strings.Repeat(")", 60),
	} {
		node, err := ParseCondition(source, nil, nil)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", source))
		qt.Check(t, qt.Equals(node.String(), want))
	}
}

func TestWhatIsWrongIsSaidAndWhere(t *testing.T) {
	for source, want := range map[string]string{
		``:                             "1: the expression ends where a number, a string.* is expected",
		`arg0 ==`:                      "8: the expression ends where a number.* is expected",
		`duration > 10`:                "12: a duration is compared with a time, which has a unit: .*",
		`10 < duration`:                "1: a duration is compared with a time, which has a unit: .*",
		`arg0 contains "x"`:            "6: a string cannot be searched: .*",
		`arg0 LIKE "x"`:                "6: a string cannot be searched: .*",
		`arg0 in ("x", "y")`:           `6: one of several is written with \|\|: .*`,
		`arg0 == 1 or arg0 == 2`:       `11: or is written \|\|`,
		`arg0 == 1 And arg0 == 2`:      `11: and is written &&`,
		`not failed`:                   "1: not is written !, .*",
		`arg0 == web`:                  `9: web is no name: a string is written in quotes, "web"`,
		`failed == true`:               "11: failed stands alone, or as !failed",
		`pid == web`:                   "8: web is not known; .*",
		`comm == 127.0.0.1`:            "9: 127.0.0 is not a number .a string is written in quotes.",
		`arg0 = 1`:                     "6: a comparison is written ==",
		`arg0 | 1`:                     "6: an alternative is written \\|\\|",
		`arg0 == 1 arg1`:               "11: &&, \\|\\| or the end is expected here",
		`(arg0 == 1`:                   "11: the expression ends where \\) is expected",
		`arg0 == 1)`:                   "10: &&, \\|\\| or the end is expected here",
		`arg0 == "x`:                   "9: the string has no end.*",
		`arg0 == "\q"`:                 "9: the string has no end, an escape that Go does not know, .*",
		`arg0 == 'x'`:                  `9: a string is written in double quotes`,
		`arg0 == $1`:                   `9: unexpected "\$"`,
		"arg0 == \xff":                 `9: unexpected "\x{FFFD}"`,
		`arg0 == 12x`:                  "9: 12x is not a number",
		`arg0 == 0x`:                   "9: 0x is not a number",
		`arg0 == 012`:                  "9: 012 is not a number",
		`arg0 == 1.2.3`:                "9: 1.2.3 is not a number.*",
		`arg0 == 1e`:                   "9: 1e is not a number",
		`arg0 == 18446744073709551616`: "9: 18446744073709551616 does not fit into 64 bits",
		`arg0 == -9223372036854775809`: "9: the number does not fit into 64 bits",
		`arg0 == - arg1`:               "11: a number, .* is expected here",
		"arg0 == `x`":                  "9: a string is written in double quotes",
		"arg0 == \"x\ny\"":             "9: the string has no end.*",
		`arg0 == 1i`:                   "9: 1i is not a number",
		`arg0 == 1.5_`:                 "9: 1.5_ is not a number",
		`arg0 == 0x1p4`:                "9: 0x1p4 is not a number",
		`arg0 == +1`:                   `9: unexpected "\+"`,
		`arg0 == 1 // && arg1`:         `11: unexpected "//"`,
		`arg0 == 1; arg1`:              `10: unexpected ";"`,
		`arg0[1] == 1`:                 `5: unexpected "\["`,
		`arg0.x == 1`:                  `5: a member is written arg0->x`,
		`if == 1`:                      "1: if is not known.*",
		`(arg0 == 1 arg1)`:             "12: &&, \\|\\| or \\) is expected here",
		`arg0 < 1 < 2`:                 `10: &&, \|\| or the end is expected here`,
		`arg0 == -"x"`:                 "10: a number, .* is expected here",
		`arg0 == &arg1`:                "9: a number, a string.* is expected here",
		`pid(1) == 1`:                  `4: &&, \|\| or the end is expected here`,
		`str() == "x"`:                 `5: an argument .* is expected here`,
		`str(1) == "x"`:                `5: an argument .* is expected here`,
		`str(arg0, 1, 2) == "x"`:       `12: \) is expected here`,
		`str == "x"`:                   `5: \( is expected here`,
		`arg == 1`:                     "1: arg is not known.*",
		`arg01 == 1`:                   "1: arg01 is not known.*",
		`arg256 == 1`:                  "1: arg256 is not known.*",
		`ARG0 == 1`:                    "1: ARG0 is not known.*",
		`comm`:                         `1: a string alone is no condition: compare it.*`,
		`comm < "x"`:                   `8: strings can only be compared by == and !=`,
		`comm == "0123456789abcdef"`:   `9: the kernel keeps 15 bytes of a command's name`,
		`comm == provider`:             `9: a string can only be compared with a string in quotes`,
		`"a" == "a"`:                   `1: two constant strings are compared`,
		`pid == "x"`:                   `8: a number is compared with a string`,
		`arg0 & 1 == "x"`:              `1: a string has no bits to mask`,
		`comm & 1 == 1`:                `1: this has no bits to mask`,
		`1.5 & 1 == arg0`:              `1: this has no bits to mask`,
		`arg0 & arg1`:                  `8: an integer is expected here`,
		`arg0 & -1`:                    `8: an integer is expected here`,
		`arg0 == "` + strings.Repeat("x", 129) +
			`"`: `9: a string to compare with can have 128 bytes`,
		`arg0 == "a\x00b"`:       `9: a string to compare with cannot contain a zero byte`,
		`str(arg0, 2) == "abc"`:  `17: 2 bytes of a string cannot be equal to 3`,
		`str(pid) == "x"`:        `5: an argument \(arg0, arg1, ...\) is expected here`,
		`str(arg0`:               `9: the expression ends where \) is expected`,
		`str(arg0, 0) == "x"`:    `11: the limit can be from 1 to 256 bytes`,
		`str(arg0, 257) == "x"`:  `11: the limit can be from 1 to 256 bytes`,
		`str arg0 == "x"`:        `5: \( is expected here`,
		`stack == 1`:             `1: this is a key, and cannot be compared`,
		`container == "4c01"`:    `1: containers are not known here: SessionOptions.Containers .*`,
		`container == 1`:         `1: a container can only be compared with a string, .*`,
		`container < "4c01"`:     `1: a container can only be compared with a string, .*`,
		`"4c01" == container`:    `1: a container can only be compared with a string, .*`,
		`container`:              `1: a container can only be compared with a string, .*`,
		`1 == latency`:           `6: latency is not known; .*`,
		`duration > 5ms3`:        `12: 5ms3 is not a number`,
		`duration > 5weeks`:      `12: 5weeks is not a number`,
		`duration > 5ms 3`:       `16: &&, \|\| or the end is expected here`,
		`start.arg0 == arg0`:     `1: a value of the start can only be compared with .*`,
		`duration == start.arg0`: `1: a value of the start can only be compared with .*`,
		`start.pid == 1`:         `7: an argument .* is expected here`,
		`global.1 == 1`:          `1: global is not known; .*`,
		`global. == 1`:           `9: the symbol of a variable is expected here`,
		`arg0-> == 1`:            `8: the name of a member is expected here`,
		`arg0->a. == 1`:          `10: the name of a member is expected here`,
		`arg0->`:                 `7: the expression ends where the name of a member is expected`,
		`arg0-`:                  `5: the expression ends in -: without quotes around it, a shell takes the >`,
		`arg0- > a`:              `5: &&, \|\| or the end is expected here`,
		`pid->a`:                 `4: &&, \|\| or the end is expected here`,
		`global.a->`:             `11: the expression ends where the name of a member is expected`,
		`global.a.b`:             `9: a member is written global.a->b`,
		`global == 1`:            `1: global is not known; .*`,
		`str(global.) == ""`:     `12: the symbol of a variable is expected here`,
		`start == 1`:             `1: start is not known .*`,
		`str(start arg0) == ""`:  `11: \. is expected here`,
		strings.Repeat("(", 100) + "arg0" + strings.Repeat(")",
			100): "66: more than 64 brackets inside each other",
		strings.Repeat("!", 100) +
			"arg0": "66: more than 64 brackets inside each other",
		strings.Repeat("arg0 || ", 64) + "arg0": "513: more than 64 comparisons",
		strings.Repeat(" ", 5000):               "1: longer than 4096 bytes",
	} {
		node, err := ParseCondition(source, nil, nil)
		qt.Check(t, qt.IsNil(node), qt.Commentf("%s", source))
		qt.Check(t, qt.ErrorMatches(err, `expression ".*", at column `+want),
			qt.Commentf("%s", source))
	}
}

func TestTermsAreUnderstood(t *testing.T) {
	for source, want := range map[string]string{
		"arg3": "arg3", " str( arg3 , 8 ) ": "str(arg3, 8)", "arg0 & 255": "arg0 & 0xff",
		"stack": "stack", "duration": "duration",
		"start.arg1": "start.arg1", "str(start.arg1, 9)": "str(start.arg1, 9)", "1.5ms": "1500000",
		"2m3s": "123000000000", "5µs": "5000",
		"site": "site", "comm": "comm", "7": "7", `"x"`: `"x"`,
	} {
		term, err := ParseTerm(source, nil)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(term.String(), want))
	}
	names := func(name string) (meaning string, known bool) {
		return map[string]string{"user": "str(global.port->name)", "fd": "arg1->fd", "loop": "loop",
			"odd": "arg0 +", "open": "\"", "more": "arg0 arg1"}[name], name != "pie"
	}
	for source, want := range map[string]string{
		"user": "str(global.port->name)", "fd & 3": "arg1->fd & 0x3", "size": "size",
		"str(size)": "str(size)", "str(user)": "str(global.port->name)",
		"str(user, 3)": "str(global.port->name, 3)",
	} {
		term, err := ParseTerm(source, names)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", source))
		qt.Check(t, qt.Equals(term.String(), want))
	}
	for source, want := range map[string]string{
		"pie":             ".*pie is not known.*",
		"str(fd)":         ".*column 1: fd is not a string",
		"str(start.user)": ".*column 11: user is no argument: .*",
		"str(pie)":        `.*column 5: pie is not known \(nearest: pid\); these are: .*`, "user fd": ".*separated by commas",
		"loop": ".*loop is not known.*", "more": ".*the end of what more stands for is expected.*",
		"odd": ".*column 1: odd stands for .*", "open": ".*column 1: open stands for .*",
	} {
		_, err := ParseTerm(source, names)
		qt.Check(t, qt.ErrorMatches(err, want))
	}
	_, err := ParseTerm("arg0 == 1", nil)
	qt.Check(t, qt.ErrorMatches(err, ".*at column 6: the end is expected here"))
}

func TestNumbersAreOrderedAsNumbers(t *testing.T) {
	ascending := []Value{
		Fraction(-1e30), Int(-1 << 63), Int(-2), Fraction(-1.5), Int(-1), Int(0), Fraction(0.5),
		Uint(1), Uint(1<<63 - 1), Uint(1<<64 - 1),
		Fraction(1e30),
	}
	for i, a := range ascending {
		for j, b := range ascending {
			c := a.Compare(b)
			qt.Check(t, qt.Equals(c < 0, i < j))
			qt.Check(t, qt.Equals(c == 0, i == j))
			for op := Equal; op <= GreaterEqual; op++ {
				qt.Check(t, qt.Equals(op.Holds(c), !op.Opposite().Holds(c)))
				qt.Check(t, qt.Equals(op.Holds(c), op.Mirrored().Holds(b.Compare(a))))
			}
		}
	}
}

// What is understood can be written down and is understood in the same way
// again; what is not is told with a place within the expression.
func FuzzCondition(f *testing.F) {
	for _, seed := range []string{
		`arg2 > 4096 && arg0 == "postgres"`, `!(arg0 & 0xff == 1 || str(arg1, 4) != "abc")`,
		`-1.5e-3 < arg0 && comm == "x\n"`,
		`(pid == 1) || cookie`, `arg0 == -9223372036854775808`, "\"", "((", "arg0 == 0x", "1e",
		"str(arg0,",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		node, err := ParseCondition(source, nil, nil)
		qt.Assert(t, qt.Equals(node == nil, err != nil))
		if err != nil {
			var wrong *SyntaxError
			qt.Assert(t, qt.IsTrue(errors.As(err, &wrong)))
			qt.Assert(t, qt.IsTrue(wrong.Offset >= 0 && wrong.Offset <= len(source)))
			return
		}
		again, err := ParseCondition(node.String(), nil, nil)
		var wrong *SyntaxError
		if errors.As(err, &wrong) && (strings.Contains(wrong.Message, "brackets") ||
			strings.Contains(wrong.Message, "longer")) {
			return
		}
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", node))
		qt.Assert(t, qt.Equals(again.String(), node.String()))
	})
}
