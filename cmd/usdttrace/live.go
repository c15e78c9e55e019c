// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/trace"
)

// live draws tables in place on the terminal. Looking closer at a row starts
// another run on the same terminal: the same command line with the row's probe,
// or with a condition and another key.
type live struct {
	screen tcell.Screen
	keys   chan *tcell.EventKey
	stderr *os.File

	mu     sync.Mutex // guards what follows: any goroutine writes messages
	open   bool
	away   bool   // the terminal is someone else's: the process is stopped
	log    []byte // messages for standard error, printed at the end
	status string // the last message
	lines  []string
	title  string
	first  int // the line of the first row
	chosen int
	held   string       // the key of the chosen row, which may move
	rows   []*trace.Row // the rows shown, nil if the lines are no rows
	typing bool         // a filter is being typed

	view
	shown  *trace.Snapshot // holds rows
	minute string          // what the last minute has so far
	tables map[*aggregation]*liveRows

	next *options // the run to start next, nil for none
	note string   // why the rows cover more than the chosen row
	back bool     // return to the previous run
	// depth is the number of nested runs, this one included.
	depth int
}

type view struct {
	table  int // its index, modulo the number of tables
	window window
	paused bool
	filter string
	sort   string
}

// window is the time whose rows are shown.
type window int

const (
	sinceStart window = iota
	lastMinute
	lastInterval
	windows // how many there are
)

// liveRows are the rows of a table. A pause keeps what is visible.
type liveRows struct {
	total   *trace.Snapshot
	parts   []*trace.Snapshot // of the last minute, the oldest first
	visible [windows][]*trace.Snapshot
}

// minute is a window, and minutePart the least that one of its parts covers, so
// that there are few.
const (
	minute     = time.Minute
	minutePart = 5 * time.Second
)

// The keys, and the same for a narrow terminal.
const (
	liveKeys   = "enter in  esc out  c count t total 9 p99  i window  / filter  p pause  q quit"
	narrowKeys = "enter esc  c t 9 sort  i window  / filter  p pause  q quit"
)

// runLive runs what the options ask for, and then each run that the user
// chooses on the terminal.
func runLive(o *options, stdout, stderr *os.File, patience time.Duration) int {
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		commandline.NewMessages("usdttrace", stderr).Warn("the terminal: %v", err)
		return exitError
	}
	l := &live{screen: screen, keys: make(chan *tcell.EventKey, 16), stderr: stderr, open: true}
	defer l.close()
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	go l.poll(continued)
	for levels := []*options{o}; ; {
		l.depth = len(levels)
		o := levels[len(levels)-1]
		l.begin(o)
		// The reason of a failure is shown on the terminal, and printed when it
		// is closed.
		t := &tracer{prepared: prepared{options: o.clone(), stdout: stdout, patience: patience,
			messages: commandline.NewMessages("usdttrace", l), live: l}}
		err := t.trace()
		status := t.exitStatus(err)
		switch {
		case l.next != nil:
			levels = append(levels, l.next)
		case l.back, err != nil && len(levels) > 1 && l.isOpen():
			levels = levels[:len(levels)-1]
		default:
			return status
		}
	}
}

// clone returns a copy. A run can add patterns to it.
func (o *options) clone() *options {
	c := *o
	c.patterns, c.callArguments = slices.Clone(o.patterns), slices.Clone(o.callArguments)
	return &c
}

// begin clears the terminal for another run.
func (l *live) begin(o *options) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next != nil || l.back {
		l.log = nil // messages of the run that the user left
	}
	if l.back {
		l.note = ""
	}
	l.next, l.back, l.shown, l.rows, l.lines = nil, false, nil, nil, nil
	l.chosen, l.held, l.title = 0, "", o.commandLine()
	l.view = view{sort: o.sort}
	l.tables = make(map[*aggregation]*liveRows)
	if l.status == "" {
		l.status = "scanning processes and attaching"
	}
	l.redraw()
}

// Write shows a message on the terminal. Once that is closed, it prints it.
func (l *live) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		return l.stderr.Write(text)
	}
	l.log = append(l.log, text...)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	l.status = strings.TrimPrefix(lines[len(lines)-1], "usdttrace: ")
	l.redraw() // something else may have written on the terminal
	return len(text), nil
}

func (l *live) isOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// leaves reports whether another run follows.
func (l *live) leaves() bool { return l.next != nil || l.back }

// close restores the terminal, and prints the messages kept meanwhile.
func (l *live) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open {
		l.open = false
		l.screen.Fini()
		_, _ = l.stderr.Write(l.log) // there is nowhere to report an error
	}
}

// stopPatience is how long the kernel may take to stop a process. It does not
// stop one that no shell could continue.
const stopPatience = 100 * time.Millisecond

// stop gives the terminal back, and stops what the terminal would stop if it
// took Ctrl-Z for itself: all of the shell's job.
func (l *live) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		return
	}
	l.away = true
	_ = l.screen.Suspend()
	_ = syscall.Kill(0, syscall.SIGTSTP)
	time.AfterFunc(stopPatience, func() {
		l.mu.Lock()
		away := l.away
		l.mu.Unlock()
		if away {
			l.resume()
		}
	})
}

// resume takes the terminal again, whatever has been done to it meanwhile.
func (l *live) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		return
	}
	l.away = false
	_ = l.screen.Suspend() // if another process has stopped this one
	_ = l.screen.Resume()
	l.redraw()
}

// redraw draws all of the terminal. The caller holds mu.
func (l *live) redraw() {
	l.show()
	if l.open && !l.away {
		l.screen.Sync()
	}
}

// poll reads keys. The keys that quit send SIGINT, which ends the run also
// while files are being attached.
func (l *live) poll(continued <-chan os.Signal) {
	go func() {
		for range continued {
			l.resume()
		}
	}()
	give := func(key *tcell.EventKey) {
		select {
		case l.keys <- key:
		default: // keys are not taken yet
		}
	}
	for {
		switch event := l.screen.PollEvent().(type) {
		case nil:
			return // the terminal is closed
		case *tcell.EventError:
			// The terminal has gone. Only one that controls this process says
			// so by a signal.
			l.close()
			_ = syscall.Kill(os.Getpid(), syscall.SIGHUP)
			return
		case *tcell.EventResize:
			l.mu.Lock()
			l.redraw()
			l.mu.Unlock()
			give(tcell.NewEventKey(tcell.KeyNUL, 0, 0)) // redraws
		case *tcell.EventKey:
			if event.Key() == tcell.KeyCtrlZ {
				l.stop()
				continue
			}
			l.mu.Lock()
			quits := event.Key() == tcell.KeyCtrlC || event.Rune() == 'q' && !l.typing
			l.mu.Unlock()
			if quits {
				l.close()
				_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
				return
			}
			give(event)
		}
	}
}

// add merges the rows of an interval into the total, and returns the total.
func (l *live) add(a *aggregation, s *trace.Snapshot) *trace.Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := l.tables[a]
	if rows == nil {
		rows = &liveRows{}
		l.tables[a] = rows
	}
	rows.total = together(a.MaxKeys, rows.total, s)
	last := len(rows.parts) - 1
	if last >= 0 && s.Time.Sub(rows.parts[last].Start) <= minutePart {
		rows.parts = append(rows.parts[:last:last], together(a.MaxKeys, rows.parts[last], s))
	} else {
		rows.parts = append(slices.Clip(rows.parts), s)
	}
	for s.Time.Sub(rows.parts[0].Start) > minute+minutePart {
		rows.parts = rows.parts[1:]
	}
	if !l.paused {
		rows.visible = [windows][]*trace.Snapshot{{rows.total}, rows.parts, {s}}
	}
	return rows.total
}

// together returns one snapshot of several that follow each other, with as many
// rows as there may be. Nil is left out.
func together(limit int, parts ...*trace.Snapshot) *trace.Snapshot {
	parts = slices.DeleteFunc(parts, func(s *trace.Snapshot) bool { return s == nil })
	sum := *parts[len(parts)-1]
	sum.Start, sum.Rows = parts[0].Start, nil
	for i, s := range parts {
		sum.Rows = append(sum.Rows, s.Rows...)
		if i < len(parts)-1 {
			sum.Overflow += s.Overflow
			sum.Other = merged(s.Other, sum.Other)
		}
	}
	all := sum.Merge(rowKey)
	if len(all.Rows) > limit {
		all = all.Top(limit)
		for i := range all.Rows {
			all.Rows[i].Partial = true // hits of this key may be in Other
		}
	}
	return all
}

// span says how much of the last minute there is.
func (r *liveRows) span() string {
	parts := r.visible[lastMinute]
	if len(parts) == 0 {
		return "last minute"
	}
	took := parts[len(parts)-1].Time.Sub(parts[0].Start)
	return fmt.Sprintf("last %.0f s", took.Seconds())
}

// rowKey is equal for rows of equal keys.
func rowKey(row *trace.Row) string {
	key := fmt.Append(nil, row.Stack)
	for _, k := range row.Keys {
		key = fmt.Appendf(key, "/%d:%q", k.Kind(), k.String())
	}
	return string(key)
}

// isSilent reports whether no table has had a row.
func (l *live) isSilent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, rows := range l.tables {
		if all := rows.visible[sinceStart]; len(all) > 0 && len(rowsOf(all[0])) > 0 {
			return false
		}
	}
	return true
}

func (l *live) draw(t *tracer) {
	var why []string
	if l.isSilent() {
		why = t.whyNothingYet()
	}
	if t.options.measuresCalls() {
		l := t.askLosses()
		if mismatch := l.mismatch(); mismatch != "" {
			why = append(why, mismatch)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		return
	}
	tables := t.printed()
	a := tables[l.table%len(tables)]
	var s *trace.Snapshot
	if rows := l.tables[a]; rows != nil {
		l.minute = rows.span()
		switch parts := rows.visible[l.window]; len(parts) {
		case 0:
		case 1:
			s = parts[0]
		default:
			s = together(a.MaxKeys, slices.Clone(parts)...)
		}
	}
	if s == nil {
		l.show()
		return
	}
	t.options.sort = l.sort
	s = t.arrange(a, s)
	all := len(s.Rows)
	if l.filter != "" {
		filtered := *s
		filtered.Rows = slices.DeleteFunc(slices.Clone(s.Rows), func(row trace.Row) bool {
			return !strings.Contains(strings.ToLower(t.rowText(s, &row)), strings.ToLower(l.filter))
		})
		filtered.Other = trace.Row{}
		s = &filtered
	}
	width, _ := l.screen.Size()
	var b strings.Builder
	p := &textPrinter{tracer: t, out: &b, width: width}
	p.rows(a, s)
	for _, line := range why {
		b.WriteString(terminal.Wrap(line, width) + "\n")
	}
	l.lines = strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if l.filter != "" {
		l.lines[0] += fmt.Sprintf("  /%s: %d of %d rows", l.filter, len(s.Rows), all)
	}
	l.shown, l.rows, l.first = s, nil, 2
	if !a.drawn && !slices.Contains(s.By, "stack") && len(s.By) > 0 {
		for i := range s.Rows {
			l.rows = append(l.rows, &s.Rows[i])
			if l.held != "" && rowKey(&s.Rows[i]) == l.held {
				l.chosen = i
			}
		}
	}
	l.show()
}

// rowText returns the text that a filter searches: keys and functions.
func (t *tracer) rowText(s *trace.Snapshot, row *trace.Row) string {
	text := ""
	for _, key := range row.Keys {
		text += key.String() + " "
	}
	if pid, ok := stackOf(s, row); ok {
		for _, frame := range t.stacks.Frames(t.ctx, pid, row.Stack) {
			text += frame.Function + " "
		}
	}
	return text
}

// show redraws the terminal. The caller holds mu.
func (l *live) show() {
	if !l.open || l.away {
		return
	}
	width, height := l.screen.Size()
	l.screen.Clear()
	put := func(x, y int, text string, style tcell.Style) {
		if y >= 0 && y < height {
			l.screen.PutStrStyled(x, y, terminal.Cut(text, max(width-x, 0)), style)
		}
	}
	plain := tcell.StyleDefault
	title := []rune(l.title)
	head := min(1+(len(title)-1)/max(width, 1), 2) // lines of the title
	room := max(height-head-2, 0)
	l.chosen = max(0, min(l.chosen, max(len(l.rows), len(l.lines)-room+1)-1))
	top := l.chosen
	if l.rows != nil {
		l.chosen = min(l.chosen, len(l.rows)-1)
		top = max(0, l.first+l.chosen-room+1)
	}
	for y := 0; y < room && top+y < len(l.lines); y++ {
		style, line := plain, l.lines[top+y]
		text := strings.TrimRight(line, "#")
		switch {
		case top+y < l.first:
			style = plain.Bold(true)
		case l.rows != nil && top+y == l.first+l.chosen:
			style = plain.Reverse(true)
		}
		put(0, head+y, text, style)
		put(len([]rune(text)), head+y, line[len(text):], plain.Foreground(tcell.ColorGreen))
	}
	status := l.note + l.status
	if l.typing {
		status = "/" + l.filter
	}
	state := [windows]string{"since the start", l.minute, "each interval"}[l.window]
	if l.paused {
		state += ", paused"
	}
	put(0, height-2, terminal.Cut(status, max(0, width-len(state)-2)), plain.Dim(!l.typing))
	put(max(0, width-len(state)), height-2, state, plain)
	put(0, 0, string(title[:min(width, len(title))]), plain.Bold(true))
	put(0, 1, string(title[min(width, len(title)):]), plain.Bold(true))
	keys := liveKeys
	if width < len(keys) {
		keys = narrowKeys
	}
	put(0, height-1, keys, plain.Reverse(true))
	l.screen.Show()
}

func (l *live) key(t *tracer, event *tcell.EventKey) {
	l.mu.Lock()
	switch r := event.Rune(); {
	case l.typing:
		switch event.Key() {
		case tcell.KeyEnter:
			l.typing = false
		case tcell.KeyEscape:
			l.typing, l.filter = false, ""
		case tcell.KeyBackspace, tcell.KeyBackspace2:
			runes := []rune(l.filter)
			l.filter = string(runes[:max(len(runes)-1, 0)])
		case tcell.KeyRune:
			l.filter += string(r)
		}
	case event.Key() == tcell.KeyUp, r == 'k':
		l.move(-1)
	case event.Key() == tcell.KeyDown, r == 'j':
		l.move(1)
	case event.Key() == tcell.KeyPgUp:
		l.move(-10)
	case event.Key() == tcell.KeyPgDn:
		l.move(10)
	case event.Key() == tcell.KeyTab:
		l.table++
	case event.Key() == tcell.KeyEscape && l.filter != "":
		l.filter = ""
	case event.Key() == tcell.KeyEscape, event.Key() == tcell.KeyBackspace2:
		l.back = l.depth > 1
	case event.Key() == tcell.KeyEnter && l.chosen < len(l.rows):
		shown, row := l.shown, l.rows[l.chosen]
		l.mu.Unlock()
		next, note, err := t.closer(shown, row)
		if err != nil {
			t.messages.Warn("%v", err)
		}
		l.mu.Lock()
		l.next, l.note = next, note
	case event.Key() == tcell.KeyEnter && l.rows == nil && l.shown != nil:
		l.status = "this is the last level: esc goes back"
	case r == 'i':
		l.window = (l.window + 1) % windows
	case r == 'p':
		l.paused = !l.paused
	case r == '/':
		l.typing = true
	case r == 'c', r == 't', r == '9':
		l.sort = map[rune]string{'c': "count", 't': "total", '9': "p99"}[r]
	}
	leaves := l.leaves()
	l.mu.Unlock()
	if leaves {
		t.end()
		return
	}
	l.draw(t)
}

// move chooses another row, or scrolls. A chosen row is followed when it moves,
// except the first: there the place stays chosen. The caller holds mu.
func (l *live) move(by int) {
	l.chosen, l.held = l.chosen+by, ""
	if len(l.rows) > 0 {
		l.chosen = max(0, min(l.chosen, len(l.rows)-1))
	}
	if l.chosen > 0 && l.chosen < len(l.rows) {
		l.held = rowKey(l.rows[l.chosen])
	}
}

// closer returns the options of the run that looks closer at a row: from a
// provider to its probes, from a probe to its keys, from a key to the stacks of
// its hits.
func (t *tracer) closer(s *trace.Snapshot, row *trace.Row) (o *options, note string, err error) {
	o = t.options.clone()
	for i, key := range row.Keys {
		name, text := s.By[i], key.String()
		switch name {
		case "provider":
			exact := elfnote.Exact(text, "x").String()
			o, err = o.of(elfnote.MustParsePattern(strings.TrimSuffix(exact, "x")+"*"), "probe")
			return o, "", err
		case "probe":
			if t.options.latency != nil {
				continue // the pair is measured, not one probe
			}
			provider, probe, _ := strings.Cut(text, ":")
			keys := t.keysOf(provider, probe)
			if o.normalize == nil && keys[0] == "query" {
				o.dialect, o.normalize = "sql", normalizer("sql")
			}
			o, err = o.of(elfnote.Exact(provider, probe), keys...)
			return o, "", err
		}
	}
	if o.latency != nil {
		return nil, "", errors.New("this is the last level: " +
			"--slow TIME --stack shows the stacks of calls")
	}
	for i, key := range row.Keys {
		value := key.String()
		if data, complete := key.Data(); key.Kind() == trace.Text {
			if o.normalize != nil || !complete {
				// The kernel cannot select by such a text: hits of all keys are
				// taken.
				note = "stacks of all, because " + s.By[i] + " is cut or normalized; "
				continue
			}
			value = strconv.Quote(string(data))
		}
		o.where = and(o.where, ofText(s.By[i])+" == "+value)
	}
	o, err = o.of(elfnote.Pattern{}, "stack")
	return o, note, err
}

// of makes the options count by other keys, and of another pattern unless that
// is empty.
func (o *options) of(pattern elfnote.Pattern, by ...string) (*options, error) {
	o.by, o.sum, o.hist, o.count, o.sort = by, "", "", true, ""
	if pattern.String() != "" {
		o.patterns = []elfnote.Pattern{pattern}
	}
	o.way = ""
	return o, o.parseUnwind()
}

// keysOf returns the keys that tell hits of a probe apart best: its first
// argument that is a named text, or else the process.
func (t *tracer) keysOf(provider, name string) []string {
	const mostArguments = 12
	for n := 1; n <= mostArguments && t.targets.definitions != nil; n++ {
		probe, _ := t.targets.definitions.Probe(provider, name, n)
		for _, argument := range probe.Arguments {
			if argument.IsText && argument.Name != "" {
				return []string{argument.Name}
			}
		}
	}
	return []string{"comm", "pid"}
}

// keptFlags stay what they were when a run looks closer.
var keptFlags = []string{"--match", "--linear", "--max-keys", "--interval", "--names", "--limits",
	"--after", "--mode"}

// commandLine returns the command line of a run, for its title.
func (o *options) commandLine() string {
	words := []string{"usdttrace --live"}
	add := func(is bool, flag, value string) {
		if is {
			if strings.ContainsAny(value, "'*?()|&<>$ \"\\[]!;`") {
				value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
			}
			words = append(words, strings.TrimSpace(flag+" "+value))
		}
	}
	add(o.count, "--count", "")
	add(o.sum != "", "--sum", o.sum)
	add(o.hist != "", "--hist", o.hist)
	if o.latency != nil {
		add(true, "--latency", o.latency.Pair)
		add(o.self, "--self", "")
	}
	add(len(o.by) > 0, "--by", strings.Join(o.by, ","))
	add(o.where != "", "--where", o.where)
	add(o.dialect != "", "--normalize", o.dialect)
	add(o.sort != "", "--sort", o.sort)
	add(o.top > 0, "--top", strconv.Itoa(o.top))
	for i, word := range o.args {
		flag, value, joined := strings.Cut(word, "=")
		if !joined && i+1 < len(o.args) {
			value = o.args[i+1]
		}
		add(slices.Contains(keptFlags, flag) &&
			(flag != "--linear" || o.hist != "" || o.latency != nil), flag, value)
	}
	add(o.pid != 0, "-p", strconv.Itoa(o.pid))
	add(o.follow, "-f", "")
	add(o.all, "-a", "")
	words = append(words, o.files...)
	for _, p := range o.patterns {
		if o.latency == nil {
			words = append(words, "'"+p.String()+"'")
		}
	}
	return strings.Join(words, " ")
}

// liveInterval is how often tables are drawn unless --interval says otherwise.
const liveInterval = time.Second

// canBeLive reports whether the output is tables that can be drawn in place.
// With a command it is not: that may write on the same terminal.
func (o *options) canBeLive() bool {
	return o.aggregates() && !o.json && o.command == nil && o.outputFile == "" && !o.profiles()
}

// useLive sets the defaults of --live: counts of all that fires, by provider.
func (o *options) useLive() {
	o.interval = cmp.Or(o.interval, liveInterval)
	if !o.aggregates() && o.slow == nil {
		if o.count = true; len(o.by) == 0 && len(o.patterns) == 0 {
			o.by = []string{"provider"}
		}
	}
	if len(o.patterns) == 0 {
		o.patterns = []elfnote.Pattern{elfnote.MustParsePattern("*")}
	}
}
