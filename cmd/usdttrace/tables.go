// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/DataDog/go-sqllexer"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/language/sqltext"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/trace"
)

// The kinds of aggregation, as JSON names them.
const (
	kindCount   = "count"
	kindSum     = "sum"
	kindHist    = "hist"
	kindLatency = "latency"
	kindSelf    = self
	kindProfile = "profile" // written into a file of its own
)

// defaultMaxKeys is the default of package trace. Messages name it.
const defaultMaxKeys = 16_384

// aggregation is a table or profile that hits are added up to: in the kernel,
// or here if it is made of events.
type aggregation struct {
	trace.Aggregation
	inKernel *trace.Aggregation // nil if it is made of events
	rows     *eventRows         // else nil
	kind     string
	title    string
	duration bool // the values are nanoseconds
	drawn    bool // each row is a histogram
	shown    bool // a table was printed
	isRest   bool // the next is what an interval has left over

	// The hits read so far: all, those of keys without a row, and of these
	// those that found no room in the kernel.
	hits, others, overflow uint64
}

// isExponential reports whether the rows have the histograms that give
// quantiles. Linear ones have no maximum.
func (a *aggregation) isExponential() bool { return a.Max && a.rows == nil && a.Histogram != nil }

// aggregations returns the aggregations that the flags ask for, in the order of
// printing.
func (o *options) aggregations() (all []*aggregation) {
	counts := trace.Aggregation{Probes: o.patterns, By: o.by, MaxKeys: o.maxKeys,
		Normalize: o.normalizeKeys()}
	values := counts
	values.Histogram, values.Sum, values.Min, values.Max = &trace.Histogram{}, true, true, true
	if o.latency != nil {
		values.Probes = o.probes // the pair's own hits are calls
		if len(o.probes) > 0 {
			counts.Probes = o.probes
		}
	}
	drawn := values
	if o.linear != nil {
		drawn.Histogram, drawn.Min, drawn.Max = o.linear, false, false
	}
	add := func(kind, title, value string, what trace.Aggregation) *aggregation {
		what.Value = value
		all = append(all, &aggregation{kind: kind, title: title, Aggregation: what})
		return all[len(all)-1]
	}
	if o.count {
		a := add(kindCount, "count", "", counts)
		if len(a.By) == 0 {
			a.By = []string{"probe"}
		}
	}
	if o.sum != "" {
		a := add(kindSum, "sum of "+o.sum, o.sum, values)
		if o.sumIsFloat { // which can be added up, but has no quantiles
			a.Histogram = nil
		}
	}
	if o.hist != "" {
		add(kindHist, "distribution of "+o.hist, o.hist, drawn).drawn = true
	}
	if o.latency != nil && o.chromeTrace == "" {
		o.addLatency(add, &values, &drawn)
	}
	if o.profiles() && !o.fromEvents() {
		all = append(all, o.profile())
	}
	for _, a := range all {
		terms := append(slices.Clone(a.By), a.Value)
		ofEnd := a.Value != "" && len(o.probes) == 0 // else of the hits of these
		if o.latency != nil && (ofEnd || slices.ContainsFunc(terms, o.isOfCall)) {
			if !o.isOfCall(a.Value) && a.printed() && a.Value != "" {
				a.title += ", at the end of calls"
			}
			a.Latency, a.duration = o.latency, a.duration || a.Value == "duration" || a.Value == self
		}
		if a.printed() && o.byStack() && o.fromEvents() { // events are aggregated here
			a.MaxKeys = cmp.Or(a.MaxKeys, maxStackRows)
			continue
		}
		a.MaxKeys = cmp.Or(a.MaxKeys, defaultMaxKeys)
		a.inKernel = &a.Aggregation
	}
	return all
}

// addLatency adds the aggregation of --latency, and that of its steps.
func (o *options) addLatency(
	add func(kind, title, value string, what trace.Aggregation) *aggregation,
	values, drawn *trace.Aggregation,
) {
	kind, value := o.timeOfCall()
	a := add(kind, o.latencyTitle(), value, *values)
	a.Latency, a.duration = o.latency, true
	value = cmp.Or(value, "duration")
	a.drawn = len(o.by) == 0 && o.linear == nil && o.hist != value
	if o.linear != nil && o.hist != value {
		// Quantiles take another histogram than the steps.
		add(kindHist, "distribution of "+value, value, *drawn).drawn = true
	}
}

// isOfCall reports whether a term belongs to the measured calls rather than to
// hits.
func (o *options) isOfCall(term string) bool {
	return term == "duration" || term == self || slices.Contains(o.callArguments, term) ||
		slices.ContainsFunc([]string{"calls(", "start.", "str(start."},
			func(prefix string) bool { return strings.HasPrefix(term, prefix) })
}

// self is the term of the time of a call without the calls inside it.
const self = "self"

// timeOfCall returns the term of the time that is added up, "" for all of it.
func (o *options) timeOfCall() (kind, value string) {
	if o.self {
		return kindSelf, self
	}
	return kindLatency, ""
}

func (o *options) latencyTitle() string {
	own := ""
	if o.self {
		own = "own "
	}
	if start, done, named := strings.Cut(o.latency.Pair, ".."); named {
		return fmt.Sprintf("%stime from %s to %s", own, start, done)
	}
	return own + "time of " + o.latency.Pair
}

func (o *options) profile() *aggregation {
	a := &aggregation{kind: kindProfile,
		Aggregation: trace.Aggregation{Probes: o.patterns, By: []string{"stack"}}}
	for _, by := range o.by {
		if !slices.Contains(a.By, by) {
			a.By = append(a.By, by)
		}
	}
	switch {
	case o.byCalls():
		a.By = []string{"calls(" + textArgument(o.by[0]) + ")"}
		fallthrough
	case o.latency != nil:
		_, a.Value = o.timeOfCall()
		a.Latency, a.Sum, a.duration = o.latency, true, true
	case o.sum != "":
		a.Value, a.Sum = o.sum, true
	}
	return a
}

// textArgument returns what stands in the parentheses of str(...) or
// calls(...), or the name of an argument.
func textArgument(by string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(by, "str("), "calls("), ")")
}

func (a *aggregation) printed() bool { return a.kind != kindProfile }

// printed returns all aggregations but the profile, which has files of its own.
func (t *tracer) printed() []*aggregation {
	return slices.DeleteFunc(slices.Clone(t.asked),
		func(a *aggregation) bool { return !a.printed() })
}

// normalizeKeys returns a function that normalizes the texts of keys, or nil.
// Who asks is no statement: the client [local], or 127.0.0.1.
func (o *options) normalizeKeys() func(key, text string) string {
	if o.normalize == nil {
		return nil
	}
	return func(key, text string) string {
		name, _, _ := strings.Cut(textArgument(key), ",")
		switch strings.TrimPrefix(name, "start.") {
		case "user", "database", "client", "application":
			return text
		}
		return o.normalize(text)
	}
}

// normalizer returns a function that makes statements equal that differ only in
// numbers, texts, comments and blanks.
func normalizer(dialect string) func(string) string {
	// A backslash in a text has no special meaning in PostgreSQL, as in
	// standard SQL.
	dbms := sqllexer.DBMSPostgres
	if dialect == "mysql" {
		dbms = sqllexer.DBMSMySQL
	}
	normalize := sqltext.Normalizer(dbms, false)
	return func(text string) string {
		normalized, _, err := normalize(text)
		if err != nil {
			return text
		}
		return normalized
	}
}

const (
	// barWidth is the length of the longest bar, in characters. Bars are left
	// out if the terminal has no room for leastBar characters.
	barWidth = 32
	leastBar = 8

	// leastText is the width that a column of texts keeps while there are
	// quantiles to leave out, and narrowText what it keeps on any terminal.
	leastText, narrowText = 32, 8
)

func (p *textPrinter) rows(a *aggregation, s *trace.Snapshot) {
	var b strings.Builder
	p.resize()
	p.separate(&b)
	title := a.title
	if p.tracer.options.interval > 0 {
		title = s.Time.Format("15:04:05") + "  " + title
	}
	fmt.Fprintf(&b, "%s%s%s\n", p.style.header, terminal.Clean(title), p.style.reset)
	switch {
	case len(s.Rows) == 0 && s.Other.Count == 0:
		b.WriteString("nothing\n")
	case a.drawn, slices.Contains(s.By, "stack"):
		p.rowsApart(&b, a, s)
	default:
		p.table(&b, a, s)
	}
	io.WriteString(p.out, b.String()) // the output keeps the error
}

// rowsOf returns the rows, and last the row of all others if it has hits.
func rowsOf(s *trace.Snapshot) []*trace.Row {
	var all []*trace.Row
	for i := range s.Rows {
		all = append(all, &s.Rows[i])
	}
	if s.Other.Count > 0 {
		all = append(all, &s.Other)
	}
	return all
}

// rowsToRead is rowsOf for programs: an interval without hits has a row, with
// the count 0 and no keys.
func (t *tracer) rowsToRead(a *aggregation, s *trace.Snapshot) []*trace.Row {
	rows := rowsOf(s)
	if len(rows) > 0 || t.options.interval == 0 {
		return rows
	}
	none := &trace.Row{}
	if a.Sum {
		none.Sum = trace.ValueOf(uint64(0))
	}
	return []*trace.Row{none}
}

var left, right = terminal.Left, terminal.Right

// otherRow stands in place of the keys of the row of all others.
const otherRow = "(other)"

func (p *textPrinter) summary(*summary) {} // it is on standard error

// table prints a line for each row, with the keys in columns.
func (p *textPrinter) table(b *strings.Builder, a *aggregation, s *trace.Snapshot) {
	var lines [][]terminal.Cell
	var header []terminal.Cell
	for _, key := range s.By {
		header = append(header, left(strings.ToUpper(terminal.Escape(key))))
	}
	columns := columnsOf(a, s)
	for _, c := range columns {
		header = append(header, right(c.name))
	}
	rows := rowsOf(s)
	shares, of := sharesOf(a, rows)
	if len(s.By) > 0 {
		header = append(header, right("%"+strings.ToUpper(of)))
	}
	lines = append(lines, header)
	for i, row := range rows {
		var line []terminal.Cell
		for i := range row.Keys {
			line = append(line, p.keyCell(s, row, i))
		}
		if row == &s.Other {
			line = append(line, make([]terminal.Cell, len(s.By))...)
			line[0].Text = otherRow
		}
		for _, c := range columns {
			line = append(line, right(c.text(row)))
		}
		if len(s.By) > 0 {
			line = append(line, right(percent(shares[i])),
				terminal.Cell{Bar: shares[i] / max(1e-9, slices.Max(shares))})
		}
		lines = append(lines, line)
	}
	p.fitTable(b, lines)
}

// keyCell shows a key: numbers flush right, with the names that values have,
// and addresses in hexadecimal, of sites with the file if there are several.
func (p *textPrinter) keyCell(s *trace.Snapshot, row *trace.Row, i int) terminal.Cell {
	name, key := s.By[i], row.Keys[i]
	text := elffile.Shorten(key.String(), maxText)
	valueName := p.tracer.targets.valueName(name, key)
	switch {
	case text == "":
		text = `""`
	case valueName != "" && key.Kind() == trace.Text:
		text = valueName
	case valueName != "":
		text = valueName + "(" + text + ")"
	case name == "site" && row.Site != nil:
		text = fmt.Sprintf("%#x", key.Uint())
		if file := fileAmong(s, row.Site.File); file != "" {
			return left(text + " " + terminal.Escape(file))
		}
	case name == "site", key.Kind() == trace.Unsigned && p.tracer.targets.isAddress(name):
		text = fmt.Sprintf("%#x", key.Uint())
	}
	return terminal.Cell{Text: text, Right: key.Kind() != trace.Text}
}

// fileAmong returns what tells a file from those of the other rows' sites: ""
// if it is the only one, its name, or its path if another one has that name.
func fileAmong(s *trace.Snapshot, file string) (shown string) {
	for i := range s.Rows {
		if site := s.Rows[i].Site; site == nil || site.File == file {
			continue
		} else if filepath.Base(site.File) == filepath.Base(file) {
			return file
		}
		shown = filepath.Base(file)
	}
	return shown
}

// sharesOf returns each row's share of the total sum, or of the total count if
// there is no sum, or one that is 0 or has negative parts: of says so then.
func sharesOf(a *aggregation, rows []*trace.Row) (each []float64, of string) {
	each = make([]float64, len(rows))
	add := func(value func(*trace.Row) float64) (total float64) {
		for i, row := range rows {
			each[i] = value(row)
			total += each[i]
		}
		return total
	}
	total := 0.0
	if a.Sum {
		total = add(sortable["total"])
	}
	if total == 0 || slices.Min(each) < 0 {
		total = add(sortable["count"])
		if a.Sum {
			of = " of count"
		}
	}
	for i := range each {
		each[i] /= total
	}
	return each, of
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// fitTable writes a table that is no wider than the terminal, as far as
// possible: first texts are cut, then bars get shorter, then quantiles are left
// out, then texts are cut further, and other columns left out. The column that
// rows are sorted by stays.
func (p *textPrinter) fitTable(b *strings.Builder, lines [][]terminal.Cell) {
	bars, least := barWidth, leastText
	dispensable := []string{"P90", "P50", "P99", "", "RATE", "MAX", "AVERAGE"} // "": of texts
	for ; p.width > 0; dispensable = dispensable[1:] {
		widths := terminal.Widths(slices.Values(lines))
		over := len("  ")*(len(widths)-1) - p.width
		for _, width := range widths {
			over += width
		}
		room := 0
		// Bars have no title, and leave the room to texts that are cut further.
		hasBars := len(widths) > len(lines[0]) && least > narrowText
		if hasBars {
			over += barWidth
			room = barWidth
		}
		for ; over > 0; over-- {
			longest := -1
			for i, title := range lines[0] {
				if !title.Right && widths[i] > least &&
					(longest < 0 || widths[i] > widths[longest]) {
					longest = i
				}
			}
			if longest < 0 {
				break
			}
			widths[longest]--
		}
		if bars = barWidth - max(over, 0); bars < leastBar || !hasBars {
			bars = 0
		}
		if over <= room || len(dispensable) == 0 {
			for _, line := range lines {
				for i := range line {
					line[i].Text = terminal.Cut(line[i].Text, widths[i])
				}
			}
			break
		}
		if dispensable[0] == "" {
			least = narrowText
			continue
		}
		i := slices.Index(lines[0], right(dispensable[0]))
		isSorted := strings.EqualFold(dispensable[0], p.tracer.options.sort)
		for n := range lines {
			if i >= 0 && !isSorted {
				lines[n] = slices.Delete(lines[n], i, i+1)
			}
		}
	}
	var bar func(float64) string
	if bars > 0 {
		bar = func(part float64) string { // at least one character
			n := max(1, int(part*float64(bars)+0.5))
			return p.style.bar + strings.Repeat("#", n) + p.style.reset
		}
	}
	terminal.WriteTable(b, slices.Values(lines), bar)
}

// rowsApart prints each row as a line with the functions of its stack, and its
// histogram if they are drawn.
func (p *textPrinter) rowsApart(b *strings.Builder, a *aggregation, s *trace.Snapshot) {
	rows := rowsOf(s)
	shares, of := sharesOf(a, rows)
	columns := columnsOf(a, s)
	for i, row := range rows {
		var texts []string
		for _, c := range columns {
			texts = append(texts, strings.ToLower(c.name)+" "+c.text(row))
		}
		switch {
		case !a.drawn:
			texts = append(texts, percent(shares[i])+of)
		case i > 0:
			b.WriteByte('\n')
		}
		fmt.Fprintf(b, "%s%s\n", strings.Join(texts, ", "), p.keysText(s, row))
		p.stack(b, s, row)
		if a.drawn {
			p.histogram(b, a, row)
		}
	}
}

// keysText returns the keys of a row without the stack: ", comm postgres, pid
// 12".
func (p *textPrinter) keysText(s *trace.Snapshot, row *trace.Row) string {
	if row == &s.Other {
		return ", " + otherRow
	}
	var text string
	for i := range row.Keys {
		if s.By[i] != "stack" {
			text += ", " + terminal.Escape(s.By[i]) + " " + p.keyCell(s, row, i).Text
		}
	}
	return text
}

// stack prints the stack of a row, if it has one.
func (p *textPrinter) stack(b *strings.Builder, s *trace.Snapshot, row *trace.Row) {
	pid, ok := stackOf(s, row)
	if !ok {
		return
	}
	frames := p.tracer.stacks.Frames(context.Background(), pid, row.Stack)
	for _, frame := range frames {
		b.Write(appendFrame(nil, frame))
	}
	if len(frames) == 0 {
		b.WriteString("    (no stack)\n")
	}
}

// stackOf returns the process that a row's stack is of; ok is false if the row
// has no stack.
func stackOf(s *trace.Snapshot, row *trace.Row) (pid int, ok bool) {
	i := slices.Index(s.By, "stack")
	if i < 0 || row == &s.Other {
		return 0, false
	}
	return int(row.Keys[i].Uint()), true
}

type column struct {
	name string
	text func(*trace.Row) string
}

// quantiles are those that tables show. A quantile's part is the share of hits
// whose values are not greater.
var quantiles = []struct {
	name, json string
	part       float64
}{{"P50", "p50", 0.5}, {"P90", "p90", 0.9}, {"P99", "p99", 0.99}}

// columnsOf returns the columns of values that an aggregation has.
func columnsOf(a *aggregation, s *trace.Snapshot) []column {
	columns := []column{
		{"COUNT", func(row *trace.Row) string {
			if row.Partial && row != &s.Other {
				return fmt.Sprintf("%d+", row.Count) // some may be in the row of all others
			}
			return fmt.Sprint(row.Count)
		}},
		{"RATE", func(row *trace.Row) string { return formatRate(rate(a, s, row)) }},
	}
	if !a.Sum {
		return columns
	}
	estimate := formatAverage
	exact := trace.Value.String
	if a.duration {
		estimate = formatDuration
		exact = func(v trace.Value) string { return formatDuration(v.Float()) }
	}
	add := func(name string, text func(*trace.Row) string) {
		columns = append(columns, column{name, text})
	}
	add("AVERAGE", func(row *trace.Row) string { return estimate(average(row)) })
	if a.isExponential() {
		for _, q := range quantiles {
			add(q.name, func(row *trace.Row) string { return estimate(row.Quantile(q.part)) })
		}
	}
	if a.Max {
		add("MAX", func(row *trace.Row) string { return exact(row.Max) })
	}
	add("TOTAL", func(row *trace.Row) string {
		if row.Sum.Kind() == trace.Float && row.Max.Kind() != trace.Float && !a.duration {
			return fmt.Sprintf("~%.3g", row.Sum.Float()) // a sum of more than 64 bits
		}
		return exact(row.Sum)
	})
	return columns
}

// sortable has the values that rows can be sorted by.
var sortable = map[string]func(*trace.Row) float64{
	"count":   func(row *trace.Row) float64 { return float64(row.Count) },
	"average": average,
	"p50":     func(row *trace.Row) float64 { return row.Quantile(0.5) },
	"p90":     func(row *trace.Row) float64 { return row.Quantile(0.9) },
	"p99":     func(row *trace.Row) float64 { return row.Quantile(0.99) },
	"max":     func(row *trace.Row) float64 { return row.Max.Float() },
	"total":   func(row *trace.Row) float64 { return row.Sum.Float() },
}

// arrange returns a snapshot as it is printed: one row for each stack, sorted
// by --sort, cut to --top. The default of --sort is the total, or the count if
// there is no total. Equal rows stay sorted by count and keys.
func (t *tracer) arrange(a *aggregation, s *trace.Snapshot) *trace.Snapshot {
	by := t.options.sort
	s = t.mergeStacks(s)
	value := sortable[cmp.Or(by, "total")]
	if a.Sum || by == "count" { // else they are sorted by count already
		sorted := *s
		sorted.Rows = slices.Clone(s.Rows)
		slices.SortStableFunc(sorted.Rows,
			func(a, b trace.Row) int { return cmp.Compare(value(&b), value(&a)) })
		s = &sorted
	}
	if t.options.top > 0 {
		s = s.Top(t.options.top)
	}
	return s
}

// maxEmpty is how many empty buckets in a row are drawn.
const maxEmpty = 3

// histogram draws the buckets of a row. Exponential ones are merged up to
// powers of two, which is fine enough for a drawing.
func (p *textPrinter) histogram(b *strings.Builder, a *aggregation, row *trace.Row) {
	buckets := row.Histogram(1)
	var most uint64
	for i := range buckets {
		most = max(most, buckets[i].Count)
	}
	lines := [][]terminal.Cell{{right("FROM"), right("TO"), right("COUNT"), right("%")}}
	isExponential := a.isExponential()
	for i := 0; i < len(buckets); i++ {
		empty := slices.IndexFunc(buckets[i:], func(b trace.Bucket) bool { return b.Count > 0 })
		if empty < 0 {
			empty = len(buckets) - i
		}
		if empty > maxEmpty {
			lines = append(lines,
				[]terminal.Cell{right("..."), right("..."), right("0"), right("0.0%")})
			i += empty - 1
			continue
		}
		bucket := &buckets[i]
		lines = append(lines, []terminal.Cell{
			right(bound(bucket.Low, false, a.duration, isExponential)),
			right(bound(bucket.High, true, a.duration, isExponential)),
			right(fmt.Sprint(bucket.Count)),
			right(percent(float64(bucket.Count) / float64(row.Count))),
			{Bar: float64(bucket.Count) / float64(most)},
		})
	}
	p.fitTable(b, lines)
}

// bound returns the text of an inclusive bound of a bucket. The first and the
// last bucket of a linear histogram have no end: their bounds are the least and
// the greatest number. Times are printed so that a bucket ends where the next
// begins: an exponential bucket begins 1 ns earlier, and a linear one ends 1 ns
// later, than its first and last value.
func bound(v trace.Value, high, isDuration, isExponential bool) string {
	signed := v.Kind() == trace.Signed
	switch {
	case isDuration && isExponential && (high || v.Float() == 0):
		return formatDuration(v.Float())
	case isDuration && isExponential:
		return formatDuration(v.Float() - 1)
	case high && (signed && v.Int() == math.MaxInt64 || !signed && v.Uint() >= math.MaxInt64):
		return "more"
	case !high && signed && v.Int() == math.MinInt64:
		return "less"
	case isDuration && high:
		return formatDuration(v.Float() + 1)
	case isDuration:
		return formatDuration(v.Float())
	}
	return v.String()
}

// csvPrinter prints tables as comma-separated values (RFC 4180). All tables of
// a run have the same columns. Calls and events are messages: among the values
// they would be rows.
type csvPrinter struct {
	*textPrinter
	values     io.Writer
	keys       []string // nil before the first table
	onTerminal bool     // which must not be given what the traced program chooses
}

func (p *csvPrinter) rows(a *aggregation, s *trace.Snapshot) {
	out := csv.NewWriter(p.values) // the output keeps the error; with UseCRLF it would change texts
	if p.keys == nil {
		p.keys = []string{}
		for _, asked := range p.tracer.printed() {
			for _, by := range asked.By {
				if !slices.Contains(p.keys, by) {
					p.keys = append(p.keys, by)
				}
			}
		}
		out.Write(slices.Concat([]string{"aggregation", "start", "time", "other"}, p.keys,
			[]string{"count", "rate", "sum", "average", "min", "p50", "p90", "p99", "max"}))
	}
	for _, row := range p.tracer.rowsToRead(a, s) {
		line := []string{a.kind, s.Start.Format(time.RFC3339Nano), s.Time.Format(time.RFC3339Nano),
			strconv.FormatBool(row == &s.Other)}
		for _, by := range p.keys {
			text := ""
			if i := slices.Index(s.By, by); i >= 0 && i < len(row.Keys) {
				text = p.keyText(s, row, i)
			}
			line = append(line, text)
		}
		number := func(x float64) string {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return ""
			}
			return strconv.FormatFloat(x, 'g', -1, 64)
		}
		value := func(v trace.Value) string {
			if !v.IsPresent() {
				return ""
			}
			return v.String()
		}
		line = append(line, fmt.Sprint(row.Count), number(rate(a, s, row)), value(row.Sum),
			number(average(row)), value(row.Min))
		for _, q := range quantiles {
			line = append(line, number(row.Quantile(q.part)))
		}
		out.Write(append(line, value(row.Max)))
	}
	out.Flush()
}

// keyText returns a key: a number, or a text with its own characters unless a
// program would not read them.
func (p *csvPrinter) keyText(s *trace.Snapshot, row *trace.Row, i int) string {
	key := row.Keys[i]
	data, complete := key.Data()
	switch {
	case key.Kind() == trace.Text && utf8.Valid(data) && !bytes.ContainsRune(data, 0) &&
		!(p.onTerminal && bytes.ContainsFunc(data, unicode.IsControl)):
		if !complete {
			return string(data) + "..."
		}
		return string(data)
	case row.Site != nil && s.By[i] == "site":
		return p.keyCell(s, row, i).Text
	}
	return key.String()
}

// average returns the sum divided by the count, or NaN if there is no sum, or
// the sum of floats is infinite.
func average(row *trace.Row) float64 {
	average := row.Sum.Float() / float64(row.Count)
	if !row.Sum.IsPresent() || math.IsInf(average, 0) {
		return math.NaN()
	}
	isFloat := row.Sum.Kind() == trace.Float // it is not exact
	if isFloat && row.Min.IsPresent() {
		average = max(average, row.Min.Float())
	}
	if isFloat && row.Max.IsPresent() {
		average = min(average, row.Max.Float())
	}
	return average
}
