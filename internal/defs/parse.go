// SPDX-License-Identifier: BSD-2-Clause

package defs

import (
	"errors"
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/scanner"
	"unicode/utf8"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/tracing"
)

// Limits of a file, which is untrusted. Real ones have some hundred probes.
const (
	maxSource    = 1 << 20
	maxProbes    = 10_000
	maxArguments = 64
	maxValues    = 4096 // of an enumeration
	maxEnds      = 16   // of a call
)

// Parse adds the definitions of a file. Its probes take the place of those that
// have the same names and number of arguments. The error of a malformed file
// has the name and the line, and leaves the definitions as they were. A file
// whose name begins with trace-events has the events of QEMU, and is read as
// such.
func (d *Definitions) Parse(name string, source []byte) error {
	if len(source) > maxSource {
		return fmt.Errorf("%s: a file of definitions can have at most %d bytes", name, maxSource)
	}
	p := parser{source: string(source), types: make(map[string]string),
		enums: make(map[string]map[int64]string), pragmas: make(map[string][]pragma)}
	// QEMU has trace-events in its sources, and installs trace-events-all.
	if strings.HasPrefix(path.Base(filepath.ToSlash(name)), "trace-events") {
		p.source = fromTraceEvents(p.source)
	}
	p.cut()
	if p.err == nil {
		p.file()
	}
	if p.err != nil {
		return fmt.Errorf("%s: line %d: %w", name, p.line, p.err)
	}
	if d.probes == nil {
		d.probes, d.calls = make(map[probeKey]Probe), make(map[[2]string]Call)
		d.pragmas = make(map[string][]pragma)
	}
	for _, probe := range p.probes {
		markTexts(probe.Arguments)
		p.addNotes(&probe)
		d.probes[probeKey{probe.Provider, probe.Name, len(probe.Arguments)}] = probe
	}
	for _, call := range p.calls {
		markTexts(call.Arguments)
		d.calls[[2]string{call.Provider, call.Name}] = call
	}
	for kind, all := range p.pragmas {
		d.pragmas[kind] = append(d.pragmas[kind], all...)
	}
	return nil
}

// parser reads a file word by word.
type parser struct {
	source string
	words  []word
	at     int

	types   map[string]string // of #define
	enums   map[string]map[int64]string
	probes  []Probe
	calls   []Call
	pragmas map[string][]pragma

	err  error
	line int // of the error
}

type word struct {
	text string // "" at the end
	line int
	at   int // in the source
}

func (p *parser) next() string {
	text := p.peek()
	if p.at < len(p.words)-1 {
		p.at++
	}
	return text
}

func (p *parser) peek() string { return p.words[p.at].text }

func (p *parser) accept(text string) bool {
	if p.peek() != text {
		return false
	}
	p.next()
	return true
}

func (p *parser) expect(text string) {
	if p.err == nil && !p.accept(text) {
		p.fail(fmt.Sprintf("%q is expected before %s", text, p.found()))
	}
}

func (p *parser) found() string {
	if p.peek() == "" {
		return "the end of the file"
	}
	return strconv.Quote(p.peek())
}

func (p *parser) fail(message string) {
	if p.err == nil {
		p.err, p.line = errors.New(message), p.words[p.at].line
	}
}

func (p *parser) name() string {
	if !isName(p.peek()) {
		p.fail("a name is expected before " + p.found())
		return ""
	}
	return p.next()
}

func (p *parser) file() {
	for p.err == nil && p.peek() != "" {
		switch {
		case p.accept("provider"):
			p.provider()
		case p.accept("enum"):
			p.enum()
		case p.accept("typedef"), p.accept("struct"), p.accept("translator"), p.accept("inline"):
			p.skipDeclaration()
		case p.accept(";"):
		default:
			p.fail(`"provider" or "enum" is expected before ` + p.found())
		}
	}
}

// skipDeclaration skips up to the semicolon that ends a declaration.
func (p *parser) skipDeclaration() {
	for depth := 0; ; {
		switch p.next() {
		case "{":
			depth++
		case "}":
			depth--
		case ";":
			if depth <= 0 {
				return
			}
		case "":
			p.fail("a declaration has no end")
			return
		}
	}
}

func (p *parser) enum() {
	name := p.name()
	p.expect("{")
	values, value := make(map[int64]string), int64(0)
	for p.err == nil && p.peek() != "}" {
		constant := p.name()
		if p.accept("=") {
			value = p.number()
		}
		if len(values) == maxValues {
			p.fail(fmt.Sprintf("an enumeration can have at most %d values", maxValues))
		}
		values[value] = constant
		value++
		if !p.accept(",") {
			break
		}
	}
	p.expect("}")
	p.enums[name] = values
}

func (p *parser) number() int64 {
	negative := p.accept("-")
	value, err := strconv.ParseInt(p.peek(), 0, 64)
	if err != nil || value == math.MaxInt64 {
		p.fail("a number is expected before " + p.found())
		return 0
	}
	p.next()
	if negative {
		return -value
	}
	return value
}

func (p *parser) provider() {
	provider := p.name()
	p.expect("{")
	for p.err == nil && p.peek() != "}" {
		if p.accept("call") {
			p.call(provider)
			continue
		}
		p.expect("probe")
		p.probe(provider)
	}
	p.expect("}")
	p.accept(";")
}

// call reads what follows the word: the name and the arguments of a call, and
// in braces its probes.
func (p *parser) call(provider string) {
	call := Call{Provider: provider, Name: p.name(), Arguments: p.arguments()}
	p.expect("{")
	for p.err == nil && p.peek() != "}" {
		if len(call.Pairs)+len(call.Failed)+len(call.Attempts)+len(call.Over)+len(call.Open) == maxEnds {
			p.fail(fmt.Sprintf("a call can have at most %d lines", maxEnds))
		}
		switch {
		case p.accept("failed"):
			call.Failed = append(call.Failed, p.callProbe())
		case p.accept("attempt"):
			call.Attempts = append(call.Attempts, p.callProbe())
		case p.accept("over"):
			call.Over = append(call.Over, p.callProbe())
		case p.accept("open"):
			call.Open = append(call.Open, p.callProbe())
		case p.accept("each"):
			call.Nesting = Each
		case p.accept("alone"):
			call.Nesting = Alone
		default:
			start := p.name()
			p.expect(".")
			p.expect(".")
			call.Pairs = append(call.Pairs, [2]string{start, p.name()})
		}
		p.expect(";")
	}
	p.expect("}")
	p.accept(";")
	switch {
	case len(call.Pairs) == 0:
		p.fail(fmt.Sprintf("the call %s has no pair of probes START..DONE", call.Name))
	case call.Nesting != Outermost && len(call.Attempts) > 0:
		p.fail(fmt.Sprintf("the call %s has attempts: only the outermost counts", call.Name))
	case len(p.calls) == maxProbes:
		p.fail(fmt.Sprintf("a file can define at most %d calls", maxProbes))
	}
	p.calls = append(p.calls, call)
}

// callProbe reads NAME [if CONDITION].
func (p *parser) callProbe() CallProbe {
	probe := CallProbe{Name: p.name()}
	if p.accept("if") {
		probe.If = p.upTo(";")
	}
	return probe
}

// upTo returns the source before a later word.
func (p *parser) upTo(end string) string {
	from := p.words[p.at].at
	for p.peek() != end && p.peek() != "" {
		p.next()
	}
	return strings.TrimSpace(p.source[from:p.words[p.at].at])
}

func (p *parser) probe(provider string) {
	probe := Probe{Provider: provider, Name: p.name(), Arguments: p.arguments()}
	if p.accept(":") {
		p.arguments() // the types to which DTrace translates them
	}
	p.expect(";")
	for _, a := range probe.Arguments {
		if _, _, ok := tracing.PointerAt(a.Value); a.Value != "" && !ok {
			p.fail("the value of a probe's argument is ARGUMENT[NUMBER], as in arg1[1]")
		}
	}
	if len(p.probes) == maxProbes {
		p.fail(fmt.Sprintf("a file can define at most %d probes", maxProbes))
	}
	p.probes = append(p.probes, probe)
}

func (p *parser) arguments() []Argument {
	var arguments []Argument
	p.expect("(")
	for p.err == nil && p.peek() != ")" {
		if len(arguments) == maxArguments {
			p.fail(fmt.Sprintf("a probe can have at most %d arguments", maxArguments))
		}
		a := p.argument()
		if p.accept("=") {
			for a.Value = p.name(); p.accept("."); {
				a.Value += "." + p.name()
			}
			if p.accept("[") {
				a.Value += "[" + p.upTo("]") + "]"
				p.expect("]")
			}
		}
		arguments = append(arguments, a)
		if !p.accept(",") {
			break
		}
	}
	p.expect(")")
	if len(arguments) == 1 && arguments[0].Type == "void" {
		return nil
	}
	for i, a := range arguments {
		if a.Name != "" &&
			slices.ContainsFunc(arguments[:i], func(b Argument) bool { return b.Name == a.Name }) {
			p.fail(fmt.Sprintf("two arguments are called %s", a.Name))
		}
	}
	return arguments
}

// argument reads a type, and a name if there is one: the last of several names,
// unless it is a word of C's types.
func (p *parser) argument() Argument {
	var names []string
	for isName(p.peek()) {
		names = append(names, p.next())
	}
	if len(names) == 0 {
		p.fail("a type is expected before " + p.found())
		return Argument{}
	}
	var a Argument
	stars := 0
	for p.accept("*") {
		stars++
		p.accept("const")
	}
	last := names[len(names)-1]
	switch {
	case stars > 0 && isName(p.peek()):
		a.Name = p.next()
	case stars == 0 && len(names) > 1 && !typeWords[last]:
		a.Name, names = last, names[:len(names)-1]
	}
	for p.accept("[") { // an array is a pointer
		for p.peek() != "]" && p.peek() != "" {
			p.next()
		}
		p.expect("]")
		stars++
	}
	a.Type = strings.Join(names, " ")
	if stars > 0 {
		a.Type += " " + strings.Repeat("*", stars)
		return a
	}
	if defined, ok := p.types[a.Type]; ok {
		a.Type = defined
	}
	a.Values = p.enums[strings.TrimPrefix(a.Type, "enum ")]
	return a
}

// typeWords are the words of C that can end a type.
var typeWords = map[string]bool{
	"char": true, "short": true, "int": true, "long": true, "signed": true, "unsigned": true,
	"float": true, "double": true, "void": true, "const": true, "bool": true, "_Bool": true,
}

// directive reads a line that begins with #, and skips those without a meaning
// here.
func (p *parser) directive(line string) error {
	fields := strings.Fields(line)
	switch {
	case len(fields) > 2 && fields[0] == "#define" && isName(fields[1]):
		for _, f := range fields[2:] {
			if !isName(strings.TrimRight(f, "*")) && strings.Trim(f, "*") != "" {
				return nil // no type
			}
		}
		p.types[fields[1]] = strings.Join(fields[2:], " ")
	case len(fields) > 2 && fields[0] == "#pragma" && fields[1] == "gousdt":
		return p.pragma(fields[2], fields[3:])
	}
	return nil
}

// pragma reads a pragma of this package. Each begins with a pattern of probes.
func (p *parser) pragma(kind string, fields []string) error {
	least := map[string]int{"when": 2, "fires": 2, "helper": 2, "note": 3, "apart": 1, "match": 2,
		"time": 2, "key": 3, "layout": 4, "own": 3, "frame": 3, "stacks": 3}[kind]
	if least == 0 || len(fields) < least {
		return errors.New("a pragma reads: #pragma gousdt when PROVIDER:PROBE TEXT, " +
			"or fires, helper, note, apart, match, time, key, layout, own, frame or stacks in place of when")
	}
	pattern, err := elfnote.ParsePattern(fields[0])
	if err != nil {
		return err
	}
	said, words := pragma{pattern: pattern}, fields[1:]
	switch kind {
	case "note", "key", "own":
		said.name, words = words[0], words[1:]
	case "match":
		words = words[:1]
	case "layout":
		offset, err := strconv.ParseUint(words[1], 0, 16)
		if err != nil {
			return fmt.Errorf("the offset of a member: %w", err)
		}
		said.name, said.offset, words = words[0], int64(offset), words[2:]
	case "frame":
		for text := range strings.SplitSeq(words[1], ",") {
			offset, err := strconv.ParseUint(text, 0, 16)
			if err != nil {
				return fmt.Errorf("the offset of a member: %w", err)
			}
			said.offsets = append(said.offsets, int32(offset))
		}
		if len(said.offsets) < 2 || len(words) != 2 && (len(words) != 4 || words[2] != "with") {
			return errors.New("a frame reads: #pragma gousdt frame PROVIDER:PAIR FUNCTION " +
				"OFFSET,OFFSET... with SYMBOL, or without the last two words")
		}
		said.name, words = words[0], words[min(3, len(words)):]
	case "stacks":
		said.name, words = words[0], words[1:]
	case "helper":
		if said.probe, err = elfnote.ParsePattern(words[0]); err != nil {
			return err
		}
		if len(words) > 1 && (len(words) != 3 || words[1] != "with") {
			return errors.New("a helper reads: #pragma gousdt helper PROVIDER:PROBE " +
				"PROVIDER:HELPER with SYMBOL, or without the last two words")
		}
		words = words[min(2, len(words)):]
	}
	said.text = strings.Join(words, " ")
	if kind == "when" || kind == "fires" {
		if reason, ok := strings.CutPrefix(said.text, "missing: "); ok {
			kind, said.text = missingBuild, reason
		}
	}
	p.pragmas[kind] = append(p.pragmas[kind], said)
	return nil
}

func (p *parser) addNotes(probe *Probe) {
	for _, note := range p.pragmas["note"] {
		for i := range probe.Arguments {
			if a := &probe.Arguments[i]; a.Name == note.name &&
				note.pattern.Match(probe.Provider, probe.Name) {
				a.Note = note.text
			}
		}
	}
}

// fromTraceEvents writes QEMU's events as the provider definition that its
// build makes of them. Lines stay where they are, for the errors.
func fromTraceEvents(source string) string {
	var b strings.Builder
	b.WriteString("provider qemu {")
	for line := range strings.Lines(source) {
		// Properties, the event's name, its arguments, and a format for log
		// files.
		head, rest, opens := strings.Cut(line, "(")
		arguments, _, closes := strings.Cut(rest, ")")
		words := strings.Fields(head)
		isEvent := opens && closes && !strings.Contains(arguments, "(") && isWordByte(line[0]) &&
			!slices.ContainsFunc(words, isNoWord)
		if !isEvent && strings.TrimSpace(line) != "" && line[0] != '#' {
			b.WriteString(line) // the parser refuses it
			continue
		}
		properties := ""
		if isEvent {
			properties = strings.Join(words[:len(words)-1], " ")
		}
		if !isEvent || strings.Contains(properties, "disable") || strings.Contains(properties, "tcg") {
			b.WriteByte('\n') // the event has no probe, or two of other names
			continue
		}
		if strings.Contains(properties, "vcpu") { // the processor is its first argument
			if strings.TrimSpace(arguments) == "void" {
				arguments = "void *cpu"
			} else {
				arguments = "void *cpu, " + arguments
			}
		}
		b.WriteString("probe " + words[len(words)-1] + "(" + arguments + ");\n")
	}
	b.WriteString("};")
	return b.String()
}

// cut cuts a file into words: names, numbers and single signs. Comments go, and
// lines that begin with # are handed to directive.
func (p *parser) cut() {
	var s scanner.Scanner
	s.Init(strings.NewReader(p.source))
	s.Mode = scanner.ScanIdents | scanner.ScanComments | scanner.SkipComments
	s.IsIdentRune = func(r rune, _ int) bool { return r >= 0 && r < utf8.RuneSelf && isWordByte(byte(r)) }
	s.Error = func(_ *scanner.Scanner, message string) {
		if message == "comment not terminated" { // other bytes are words that the parser refuses
			p.err, p.line = errors.New("a comment has no end"), s.Line
		}
	}
	last := 0 // line of the word before
	for kind := s.Scan(); kind != scanner.EOF && p.err == nil; kind = s.Scan() {
		if kind != '#' || s.Line == last {
			p.words = append(p.words, word{s.TokenText(), s.Line, s.Offset})
			last = s.Line
			continue
		}
		text, _, _ := strings.Cut(p.source[s.Offset:], "\n")
		if err := p.directive(text); err != nil {
			p.err, p.line = err, s.Line
		}
		for s.Peek() != '\n' && s.Peek() != scanner.EOF {
			s.Next()
		}
	}
	p.words = append(p.words, word{"", s.Pos().Line, len(p.source)})
}

func isWordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func isNoWord(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf || !isWordByte(byte(r)) })
}

func isName(s string) bool {
	return s != "" && isWordByte(s[0]) && (s[0] < '0' || s[0] > '9')
}
