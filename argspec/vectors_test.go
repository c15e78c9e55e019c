// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
)

// decodeVector decodes the string of a vector.
func decodeVector(v *testprog.Vector) []Arg {
	return decodeVectorAt(v, v.Location)
}

func decodeVectorAt(v *testprog.Vector, location uint64) []Arg {
	p := parser{location: location}
	p.open(v.File)
	if v.NoSymbols {
		p.file = nil
	}
	return p.decode(nil, v.Text)
}

// reasonWords are the words that the vectors have for the reasons.
var reasonWords = map[string]error{
	"machine":              errMachine,
	"syntax":               errSyntax,
	"number":               errNumber,
	"size":                 errSize,
	"register":             errRegister,
	"not-saved":            errNotSaved,
	"register-pair":        errRegisterPair,
	"index":                errIndex,
	"thread-local":         errThreadLocal,
	"relocation":           errRelocation,
	"local-label":          errLocalLabel,
	"no-symbols":           errNoSymbols,
	"symbol":               errSymbol,
	"position-independent": errPositionIndependent,
	"unclear":              errUnclear,
	"indirect":             errIndirect,
	"replaceable":          errReplaceable,
	"not-linked":           errNotLinked,
}

// loadVectors reads all vector files.
func loadVectors(tb testing.TB) []testprog.Vector {
	vectors, err := testprog.LoadVectors("../internal/testdata/vectors")
	qt.Assert(tb, qt.IsNil(err))
	return vectors
}

// vectorText writes arguments as the vectors have them.
func vectorText(args, elsewhere []Arg, kernel elf.Machine) string {
	if len(args) == 0 {
		return "none"
	}
	var results []string
	for i, a := range args {
		results = append(results,
			vectorFormat(a)+vectorPlace(a, a.Displacement != elsewhere[i].Displacement, kernel))
	}
	return strings.Join(results, " ; ")
}

func vectorFormat(a Arg) string {
	text := a.format()
	if kind, ok := map[byte]string{'i': "signed", 'u': "unsigned", 'f': "float"}[text[0]]; ok {
		text = fmt.Sprintf("%d %s", a.Size, kind)
	}
	return text
}

func vectorPlace(a Arg, relative bool, kernel elf.Machine) string {
	register := func(r Register) string {
		slot, ok := r.Slot(kernel)
		if !ok {
			return r.Name + "@none"
		}
		return fmt.Sprintf("%s@%d", r.Name, slot)
	}
	switch a.Kind {
	case Constant:
		return fmt.Sprintf(" constant %#x", a.Constant)
	case InRegister:
		text := " register " + register(a.Register)
		if a.Register.Shift != 0 {
			text += fmt.Sprintf(" shift %d", a.Register.Shift)
		}
		if !a.High.isZero() {
			text += " high " + register(a.High)
		}
		return text
	case Memory, Address, Bytes:
		text := ""
		if a.Kind != Bytes {
			text = " " + a.Kind.String()
		}
		if !a.Base.isZero() {
			text += " base " + register(a.Base)
		}
		if !a.Index.isZero() {
			text += " index " + register(a.Index)
			if a.IndexSize != 0 {
				text += map[int8]string{4: " uxtw", -4: " sxtw"}[a.IndexSize]
			}
		}
		if a.Scale != 1 {
			text += fmt.Sprintf(" scale %d", a.Scale)
		}
		text += fmt.Sprintf(" displacement %d", a.Displacement)
		if relative {
			text += " relative"
		}
		if a.Address32 {
			text += " address32"
		}
		return text
	}
	for word, reason := range reasonWords {
		if errors.Is(a.Err, reason) {
			return " unavailable " + word
		}
	}
	return fmt.Sprint(" unavailable ", a.Err)
}

func TestParseDecodesTheConformanceVectors(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range loadVectors(t) {
		args := decodeVector(&v)
		if got := vectorText(args, decodeVectorAt(&v, v.Location+16), v.Kernel); got != v.Expected {
			t.Errorf("%s: %q\n got: %s\nwant: %s", v.Place, v.Text, got, v.Expected)
		}
		checkInvariants(t, v.Text, args)
		for _, result := range strings.Split(v.Expected, " ; ") {
			if _, word, ok := strings.Cut(result, "unavailable "); ok {
				seen[word] = true
			}
		}
	}
	for word := range reasonWords {
		qt.Check(t, qt.IsTrue(seen[word]), qt.Commentf("no vector has the reason %s", word))
	}
}

// checkInvariants checks what holds of every result, whatever the string.
func checkInvariants(tb testing.TB, text string, args []Arg) {
	rest := text
	for _, a := range args {
		rest = strings.TrimLeft(rest, blanks)
		var ok bool
		if rest, ok = strings.CutPrefix(rest, a.Raw); !ok || a.Raw == "" {
			tb.Fatalf("%q: argument %q is not what comes next: %q", text, a.Raw, rest)
		}
		checkArg(tb, a)
	}
	if strings.TrimLeft(rest, blanks) != "" {
		tb.Fatalf("%q: %q is in no argument", text, rest)
	}
}

func checkArg(tb testing.TB, a Arg) {
	fail := func(what string) { tb.Fatalf("%q: %s: %#v", a.Raw, what, a) }
	if a.Signed && a.Float {
		fail("signed and float")
	}
	if a.Size < 0 || a.Size > maxSize {
		fail("size out of range")
	}
	if a.Kind == Unavailable {
		unavailable, ok := a.Err.(*unavailableError)
		if !ok || unavailable.raw != a.Raw || unavailable.reason == nil {
			fail("bad error")
		}
		if !a.Register.isZero() || !a.High.isZero() || !a.Base.isZero() || !a.Index.isZero() ||
			a.Scale != 0 || a.Displacement != 0 || a.Constant != 0 || a.Address32 {
			fail("unavailable with remains")
		}
		return
	}
	if (a.Err != nil) != (a.Kind == Bytes) {
		fail("an error of the wrong kind")
	}
	isNumber := a.Size == 1 || a.Size == 2 || a.Size == 4 || a.Size == 8
	if isNumber == (a.Kind == Bytes) || a.Size == 0 {
		fail("size")
	}
	isMemory := a.Kind == Memory || a.Kind == Address || a.Kind == Bytes
	if (a.Kind == InRegister) == a.Register.isZero() {
		fail("register")
	}
	if !a.High.isZero() && (a.Kind != InRegister || a.Size != 8 || a.Register.Shift != 0 ||
		a.High.slot == a.Register.slot) {
		fail("two registers")
	}
	if !isMemory && (!a.Base.isZero() || !a.Index.isZero() || a.Scale != 0 || a.Displacement != 0 ||
		a.Address32) {
		fail("address of what is not in memory")
	}
	if isMemory && (a.Scale == 0 || a.Scale&(a.Scale-1) != 0 || a.Index.isZero() && a.Scale != 1) {
		fail("scale")
	}
	if a.Kind == Constant && a.Constant != extend(a.Constant, a.Size, a.Signed) {
		fail("constant is not extended")
	}
	if a.Kind != Constant && a.Constant != 0 {
		fail("constant elsewhere")
	}
	for _, r := range []Register{a.Register, a.High, a.Base, a.Index} {
		if !r.isZero() && (r.Name == "" || r.slot > 40 || r.size == 0 || r.size > 8) {
			fail("illegal register")
		}
	}
}
