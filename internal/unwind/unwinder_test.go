// SPDX-License-Identifier: BSD-2-Clause

package unwind

import (
	"math"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// spent returns how much work a step takes, from an instruction of the
// function.
func spent(t *testing.T, table *Table, instruction uint64) int {
	t.Helper()
	before := table.Work
	s := State{PC: codeAddress + instruction}
	s.Registers[7] = stackBase
	qt.Assert(t, qt.IsNil(table.Step(&s, 0, words(0x1234))))
	return before - table.Work
}

func TestWorkIsWhatIsExecuted(t *testing.T) {
	table := tableOf(framesOf("zR", "\x00", initial, ""))
	first := spent(t, table, 0)
	qt.Check(t, qt.IsTrue(first >= workOfRow && first < workOfRow+10), qt.Commentf("%d", first))
	again := spent(t, table, 0)
	qt.Check(t, qt.IsTrue(again < 5), qt.Commentf("%d for a row that is known", again))

	table = tableOf(framesOf("zR", "\x00", initial, strings.Repeat("\x00", 1000)))
	qt.Check(t, qt.Equals(spent(t, table, 0), first+1000))
	table = tableOf(framesOf("zR", "\x00", initial, strings.Repeat("\x0a\x0b", 1000)))
	qt.Check(t, qt.Equals(spent(t, table, 0), first+2000*workOfState))
	expression := "\x16\x06\x64" + strings.Repeat("\x96", 99) + "\x31" // of rbp
	table = tableOf(framesOf("zR", "\x00", initial, expression))
	qt.Check(t, qt.Equals(spent(t, table, 0), first+1+100+1))
	qt.Check(t, qt.Equals(spent(t, table, 0), again+100+1))
}

// A file that is made to take much work takes what there is, and no stack is
// wrong because of that: the next one goes on where there is work again.
func TestWorkIsBounded(t *testing.T) {
	instructions := strings.Repeat("\x0a\x0b", maxInstructions/2-100) + "\x0e\x10"
	for _, test := range []struct {
		name, frames string
	}{
		{"instructions", string(framesOf("zR", "\x00", initial, instructions))},
		{"expression that loops", string(framesOf("zR", "\x00",
			"\x0f\x05\x77\x08\x2f\xfd\xff\x90\x01", ""))},
		{"rules of expressions that loop", string(framesOf("zR", "\x00",
			initial+strings.Repeat("\x16\x03\x03\x2f\xfd\xff", 10), ""))},
	} {
		t.Run(test.name, func(t *testing.T) {
			table := tableOf([]byte(test.frames))
			for _, work := range []int{0, 1, workOfRow, workOfRow + 10, workOfRow + 500} {
				table.Work = work
				s := State{PC: codeAddress}
				s.Registers[7] = stackBase
				before := s
				qt.Check(t, qt.ErrorIs(table.Step(&s, 0, words(1, 2, 3)), ErrWork),
					qt.Commentf("%d steps", work))
				qt.Check(t, qt.Equals(s, before))
				qt.Check(t, qt.Equals(table.Work, 0))
			}
			table.Work = math.MaxInt
			_, err := table.row(codeAddress)
			qt.Check(t, qt.IsNil(err),
				qt.Commentf("what has not been finished is not taken for damaged"))
		})
	}
}

// What a table keeps is what it says, until it forgets it.
func TestRowsAreCounted(t *testing.T) {
	var rules string // 16 registers have one beside the return address
	for n := range 16 {
		rules += string([]byte{0x80 | byte(n), 2})
	}
	table := tableOf(framesOf("zR", "\x00", initial+rules, ""))
	for range 2 {
		for at := range uint64(codeSize + 10) { // the last have no entry
			_, err := table.row(codeAddress + at)
			qt.Assert(t, qt.Equals(err == nil, at < codeSize))
		}
		qt.Check(t, qt.Equals(table.Kept(), (codeSize+10)*rowSize+codeSize*17*rowRuleSize))
	}
	table.Forget()
	qt.Check(t, qt.Equals(table.Kept(), 0))
	qt.Check(t, qt.HasLen(table.rows, 0))
}

// The index is made of a bounded number of records.
func TestManyRecordsWithoutEntries(t *testing.T) {
	const size = 8 // of a common part that is too short to be one
	frames := strings.Repeat("\x04\x00\x00\x00\x00\x00\x00\x00", maxRecords+1000)
	last := len(frames)
	frames += string(framesOf("zR", "\x00", initial, ""))
	table := tableOf([]byte(frames))
	qt.Check(t, qt.HasLen(table.index, 0), qt.Commentf("the entry at %d is behind %d records", last,
		last/size))
}

// FuzzExpression evaluates anything: no panic, and no more work than there is.
func FuzzExpression(f *testing.F) {
	for _, seed := range []string{"\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22", "\x2f\xfd\xff",
		"\x31\x15\x01", "\x35\x36\x37\x17\x1c", "\x77\x08\x94\x02"} {
		f.Add([]byte(seed), uint16(100))
	}
	f.Fuzz(func(t *testing.T, expression []byte, work uint16) {
		table := tableOf(expression)
		table.Work = int(work)
		s := &State{}
		s.Registers[7] = stackBase
		value, err := table.evaluate(code{0, len(expression)}, s, words(1, 2, 3), 1)
		if err != nil && value != 0 {
			t.Errorf("an error and %#x", value)
		}
		if left := table.Work; left < 0 || left > int(work) {
			t.Errorf("%d steps left of %d", left, work)
		}
	})
}

func TestHasFramePointer(t *testing.T) {
	for instructions, want := range map[string]bool{
		"":                 false, // by the stack pointer
		"\x0d\x06":         true,  // DW_CFA_def_cfa_register rbp
		"\x0e\x10\x86\x02": false, // rbp is saved, as any other register
	} {
		table := tableOf(framesOf("", "", initial, instructions))
		has, ok := table.HasFramePointer(codeAddress + 4)
		qt.Check(t, qt.IsTrue(ok))
		qt.Check(t, qt.Equals(has, want), qt.Commentf("%q", instructions))
		_, ok = table.HasFramePointer(codeAddress - 1)
		qt.Check(t, qt.IsFalse(ok))
	}
}
