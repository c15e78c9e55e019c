// SPDX-License-Identifier: BSD-2-Clause

package unwind

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestExpressions(t *testing.T) {
	minus := func(n uint64) uint64 { return -n }
	for _, test := range []struct {
		name, expression string
		want             uint64
	}{
		{"literal", "\x4f", 31},
		{"constants", "\x08\xff", 255},
		{"signed byte", "\x09\xff", minus(1)},
		{"two bytes", "\x0a\x01\x02", 0x201},
		{"two signed bytes", "\x0b\xfe\xff", minus(2)},
		{"four bytes", "\x0c\x01\x02\x03\x80", 0x80030201},
		{"four signed bytes", "\x0d\x00\x00\x00\x80", minus(1 << 31)},
		{"eight bytes", "\x0e\x01\x02\x03\x04\x05\x06\x07\x88", 0x8807060504030201},
		{"eight signed bytes", "\x0f\xff\xff\xff\xff\xff\xff\xff\xff", minus(1)},
		{"number", "\x10\x80\x01", 128},
		{"signed number", "\x11\x7f", minus(1)},
		{"register", "\x76\x78", 77 - 8},
		{"register by number", "\x92\x06\x08", 77 + 8},
		{"memory", "\x77\x08\x06", 0x1122334455667788},
		{"two bytes of memory", "\x77\x08\x94\x02", 0x7788},
		{"duplicate", "\x35\x12\x22", 10},
		{"drop", "\x35\x36\x13", 5},
		{"over", "\x35\x36\x14", 5},
		{"pick", "\x35\x36\x37\x15\x02", 5},
		{"swap", "\x35\x36\x16\x1c", 1},
		{"rotate", "\x35\x36\x37\x17\x1c", minus(1)}, // 7 5 6: 5 - 6
		{"rotate to the third", "\x35\x36\x37\x17\x13\x13", 7},
		{"absolute", "\x11\x7f\x19", 1},
		{"and", "\x36\x33\x1a", 2},
		{"divide", "\x11\x7a\x34\x1b", minus(1)},
		{"modulo", "\x37\x34\x1d", 3},
		{"multiply", "\x37\x34\x1e", 28},
		{"negate", "\x37\x1f", minus(7)},
		{"not", "\x37\x20", minus(8)},
		{"or", "\x36\x33\x21", 7},
		{"plus", "\x36\x33\x22", 9},
		{"plus a constant", "\x36\x23\x81\x01", 135},
		{"shift left", "\x31\x34\x24", 16},
		{"shift right", "\x11\x7f\x08\x3f\x25", 1},
		{"shift right by sign", "\x11\x7e\x31\x26", minus(1)},
		{"shift far", "\x31\x08\x80\x24", 0},
		{"exclusive or", "\x36\x33\x27", 5},
		{"equal", "\x36\x36\x29", 1},
		{"at least", "\x11\x7f\x30\x2a", 0},
		{"greater", "\x31\x11\x7f\x2b", 1},
		{"at most", "\x11\x7f\x30\x2c", 1},
		{"less", "\x31\x30\x2d", 0},
		{"other", "\x31\x30\x2e", 1},
		{"skip", "\x31\x2f\x01\x00\x32\x33", 3},
		{"branch", "\x31\x30\x28\x01\x00\x32", 2},
		{"loop", "\x3a\x31\x1c\x12\x28\xfa\xff", 0},
		{"nothing", "\x35\x96", 5},
		// What linkers write for the entries of the procedure linkage table of
		// x86-64.
		{"linkage table", "\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22", stackBase + 8 + 8},
	} {
		value, err := evaluateText(test.expression)
		qt.Check(t, qt.IsNil(err), qt.Commentf("%s", test.name))
		qt.Check(t, qt.Equals(value, test.want), qt.Commentf("%s", test.name))
	}
}

func TestExpressionsMalformed(t *testing.T) {
	for _, expression := range []string{
		"", "\xe0", "\x08", "\x12", "\x13", "\x14", "\x31\x14", "\x16", "\x31\x32\x17", "\x15\x00",
		"\x31\x15\x01", "\x22", "\x31\x22",
		"\x31\x30\x1b", "\x31\x30\x1d", "\x2f\xfd\xff", "\x2f\x01\x00", "\x2f\x80\x80",
		"\x28\x00\x00", "\x31\x94\x03",
		"\x8f\x00", "\x92\xff\xff\x03\x00", "\x03\x00\x00\x00\x00\x00\x00\x00\x00", "\x30\x06",
		"\x06", "\x19", "\x10\x80",
		strings.Repeat("\x31", maxOperands+1), strings.Repeat("\x96", maxOperations+1) + "\x31",
	} {
		_, err := evaluateText(expression)
		qt.Check(t, qt.IsNotNil(err), qt.Commentf("%q", expression))
	}
}

// evaluateText evaluates in a state with known registers and memory.
func evaluateText(expression string) (uint64, error) {
	table := tableOf([]byte(expression))
	s := &State{lost: 1 << 31}
	s.Registers[6], s.Registers[7], s.Registers[16] = 77, stackBase, codeAddress+11
	return table.evaluate(code{0, len(expression)}, s, words(0, 0x1122334455667788))
}
