// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.uber.org/zap"

	"github.com/gousdt/gousdt/trace"
)

const (
	// maxBatch is how many events are sent together, and maxWait how long one
	// waits for others.
	maxBatch = 512
	maxWait  = 200 * time.Millisecond

	// delay is how long an event waits until the kernel wakes the receiver.
	// Waking it for each event would cost the traced program more than all
	// else.
	delay = 100 * time.Millisecond

	// The first and the longest wait between attempts to send refused events.
	firstRetry = 100 * time.Millisecond
	maxRetry   = 5 * time.Second
)

// batch is events that are sent together.
type batch interface {
	add(*trace.Event)
	count() int
	// send sends what was added, and begins anew unless it is to be tried
	// again.
	send(context.Context) error
	clear()
}

// deliver sends the events of a session until the receiver pauses and all
// earlier events have come. While a consumer refuses them, such as a memory
// limiter, they wait in the kernel's buffer. An event that finds no room there
// is lost, and counted.
//
// Once ending is done, refused events are not sent again.
func (s *source) deliver(ending context.Context, b batch) {
	events := make(chan *trace.Event, maxBatch)
	s.receiver.delivering.Go(func() {
		defer close(events)
		reading, stop := context.WithCancel(context.Background())
		defer stop()
		var pausedAt atomic.Pointer[time.Time]
		defer context.AfterFunc(s.receiver.pausing, func() {
			now := time.Now()
			pausedAt.Store(&now)
			_ = s.session.Drain(reading) // it ends with the reader, too
			stop()
		})()
		for event, err := range s.session.Events(reading) {
			if err != nil {
				s.receiver.logger.Warn("events are missing", zap.String("source", s.name),
					zap.Error(err))
				continue
			}
			s.items[0].hits.Add(event.Weight)
			events <- event
			// Later events wait for the next reader, if there is one.
			if at := pausedAt.Load(); at != nil && event.Time.After(*at) {
				return
			}
		}
	})
	s.receiver.delivering.Go(func() {
		var due <-chan time.Time // nil while nothing waits
		for {
			select {
			case event, ok := <-events:
				if !ok {
					s.send(ending, b)
					return
				}
				s.convert(func() { b.add(event) })
				switch n := b.count(); {
				case n >= maxBatch:
					s.send(ending, b)
					due = nil
				case n > 0 && due == nil:
					due = time.After(maxWait)
				}
			case <-due:
				s.send(ending, b)
				due = nil
			}
		}
	})
}

// convert calls work, which converts a hit or a row to data to send, and
// recovers from a panic. The input comes from traced processes: a mistake in
// reading it must not end the Collector. Nothing else recovers.
func (s *source) convert(work func()) {
	defer func() {
		if mistake := recover(); mistake != nil {
			s.unconverted.Add(1)
			s.receiver.logger.Error("an event could not be converted: please report this",
				zap.String("source", s.name), zap.Any("mistake", mistake), zap.Stack("stack"))
		}
	}()
	work()
}

// send sends a batch, and tries again while it is refused for now.
func (s *source) send(ending context.Context, b batch) {
	defer b.clear()
	for wait := firstRetry; b.count() > 0; wait = min(2*wait, maxRetry) {
		err := b.send(s.receiver.sending)
		if err == nil {
			return
		}
		if consumererror.IsPermanent(err) || ending.Err() != nil {
			s.refused.Add(uint64(b.count()))
			s.receiver.logger.Error("events were not sent", zap.String("source", s.name),
				zap.Int("events", b.count()), zap.Error(err))
			return
		}
		select {
		case <-ending.Done():
		case <-time.After(wait):
		}
	}
}

func (s *source) resourceOf(e *trace.Event) *resource {
	ps := s.receiver.processes
	if ps.kind == ByProcess && e.PID != 0 && !ps.knows(e.PID, e.Time) {
		_ = s.receiver.watch.Sync(context.Background(), e.PID) // what is wrong with it was reported to changed
	}
	return ps.resourceOf(e.PID, e.CgroupID)
}

// Attributes of spans and log records.
const (
	attributeThread = "thread.id"
	// attributeHits is how many hits a record stands for.
	attributeHits = "usdt.hits"
)

// fillThread sets the thread of an event, and the process if that is not the
// resource.
func (r *resource) fillThread(to pcommon.Map, e *trace.Event) {
	putID(to, attributeThread, e.TID)
	if r.process == nil {
		putID(to, attributePID, e.PID)
	}
}

// term is the source of an attribute of a span or of a log record: a term of
// package trace whose value is in the event.
type term struct {
	source string // argument, text, or the name of another term
	start  bool   // of the hit that began the call
	arg    string // the argument's name
	length string // of a text: the argument that says its length, or ""
	max    int    // of a text: its limit, 0 for the default
	value  string // of a constant

	function func(string) string // of a text; nil for none
}

const (
	argumentTerm = "argument"
	textTerm     = "text"
	constantTerm = "constant"

	// defaultText is how many bytes of a text are read if the expression has no
	// limit: a query is seldom longer.
	defaultText = 1024

	// defaultParentText is the same for a text that ends with the context of
	// the caller.
	defaultParentText = 8192

	// maxText is the limit of package trace.
	maxText = 32 << 10
)

// eventTerms are the terms that are not arguments.
var eventTerms = []string{"pid", "tid", "comm", "cpu", "cgroup", "probe", "provider",
	"cookie", "duration"}

var (
	plainTerm  = regexp.MustCompile(`^(start\.)?([A-Za-z_]\w*)$`)
	quotedTerm = regexp.MustCompile(`^(?:'([^']*)'|"([^"]*)")$`)
	stringTerm = regexp.MustCompile(`^str\(\s*(start\.)?([A-Za-z_]\w*)\s*(?:,\s*(\w+)\s*)?\)$`)
)

// parseTerm reads a term. Only spans have a start.
func parseTerm(text string, span bool) (t term, err error) {
	if function, of := splitFunction(text); function != nil {
		t, err := parseTerm(of, span)
		t.function = function
		return t, cmp.Or(err,
			wrong(t.source != textTerm, "%q is of %s, which is not a string", text, of))
	}
	text = strings.TrimSpace(text)
	if text == failureTerm && span {
		return term{source: failureTerm}, nil
	}
	if m := quotedTerm.FindStringSubmatch(text); m != nil {
		return term{source: constantTerm, value: m[1] + m[2]}, nil
	}
	if m := stringTerm.FindStringSubmatch(text); m != nil {
		t = term{source: textTerm, start: m[1] != "", arg: m[2]}
		if n, err := strconv.Atoi(m[3]); err != nil {
			t.length = m[3]
		} else if t.max = n; n < 1 || n > maxText {
			return t, fmt.Errorf("%s: a string has from 1 to %d bytes", text, maxText)
		}
	} else if slices.Contains(eventTerms, text) {
		t = term{source: text}
	} else if m := plainTerm.FindStringSubmatch(text); m != nil {
		t = term{source: argumentTerm, start: m[1] != "", arg: m[2]}
	} else {
		return t, fmt.Errorf(
			"%q is neither an argument, nor str(...) of one, nor a string in quotes, nor one of %s",
			text, strings.Join(eventTerms, ", "))
	}
	return t, wrong(!span && (t.start || t.source == "duration"),
		"%s: only spans have a start and a duration", text)
}

// attribute is a term with its name.
type attribute struct {
	name string
	term term
}

func parseAttributes(all map[string]string, span bool) ([]attribute, error) {
	var parsed []attribute
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t, err := parseTerm(all[name], span)
		if err != nil {
			return nil, inField("attributes."+name, err)
		}
		parsed = append(parsed, attribute{name, t})
	}
	return parsed, nil
}

// parseTerms parses the attributes and the parent.
func parseTerms(all map[string]string, of *ParentConfig, span bool) ([]attribute, *parent, error) {
	attributes, err := parseAttributes(all, span)
	if err != nil {
		return nil, nil, err
	}
	parent, err := of.parse(span)
	return attributes, parent, err
}

// termsOf returns the terms of attributes and of a parent.
func termsOf(attributes []attribute, p *parent) (all []term) {
	for _, a := range attributes {
		all = append(all, a.term)
	}
	if p != nil {
		all = append(all, p.term)
	}
	return all
}

// captures returns the captures that terms need: for each argument, as many
// bytes as the longest of them.
func captures(terms []term) []trace.Capture {
	var all []trace.Capture
	for _, t := range terms {
		if t.source != textTerm {
			continue
		}
		i := slices.IndexFunc(all, func(c trace.Capture) bool { return c.Arg == t.arg })
		if i < 0 {
			all = append(all, trace.Capture{Arg: t.arg, Length: t.length, Max: t.limit()})
			continue
		}
		all[i].Max = max(all[i].Max, t.limit())
		if t.length == "" {
			all[i].Length = ""
		}
	}
	return all
}

func (t term) limit() int { return cmp.Or(t.max, defaultText) }

// argument returns an argument of a hit by its name. The ends of calls that
// several probes end have no arguments: for them it is that of the start.
func (t term) argument(e *trace.Event) (trace.Value, bool) {
	if t.start || e.Start != nil && len(e.Args) == 0 {
		e = e.Start
	}
	if e == nil || e.Site == nil {
		return trace.Value{}, false
	}
	if i := t.index(e.Site, len(e.Args)); i >= 0 {
		return e.Args[i], true
	}
	return trace.Value{}, false
}

// index returns the number of the argument, -1 if none of n has the name.
func (t term) index(site *trace.Site, n int) int {
	for i := range n {
		if t.arg == "arg"+strconv.Itoa(i) || t.arg == site.Argument(i).Name {
			return i
		}
	}
	return -1
}

// text returns the text of the term, and whether that is all of it.
func (t term) text(e *trace.Event) (text []byte, complete bool) {
	v, ok := t.argument(e)
	if !ok {
		return nil, false
	}
	text, complete = v.Data()
	if limit := t.limit(); len(text) > limit {
		return text[:limit], false
	}
	return text, complete
}

// put sets an attribute to the term's value at a hit, if there is one.
func (t term) put(to pcommon.Map, name string, e *trace.Event) {
	switch t.source {
	case argumentTerm:
		if v, ok := t.argument(e); ok {
			putValue(to, name, v)
		}
	case constantTerm:
		putText(to, name, t.value)
	case textTerm:
		text, _ := t.text(e)
		if text != nil && t.function != nil {
			text = []byte(t.function(string(text)))
		}
		if len(text) > 0 || text != nil && t.function == nil {
			putText(to, name, text)
		}
	case failureTerm:
		if _, probe, _ := strings.Cut(e.Probe, ":"); e.Failed {
			putText(to, name, cmp.Or(e.Ended, probe))
		}
	case "pid":
		putID(to, name, e.PID)
	case "tid":
		putID(to, name, e.TID)
	case "comm":
		putText(to, name, e.Command)
	case "cpu":
		to.PutInt(name, int64(e.CPU))
	case "cgroup":
		putValue(to, name, trace.ValueOf(e.CgroupID))
	case "probe":
		putText(to, name, e.Probe)
	case "provider":
		putText(to, name, e.Site.Provider)
	case "cookie":
		putValue(to, name, trace.ValueOf(e.Site.Cookie))
	case "duration":
		to.PutInt(name, e.Duration.Nanoseconds())
	}
}

// putID sets an attribute to the number of a process or a thread, unless it is
// of a PID namespace that the receiver does not see.
func putID(to pcommon.Map, name string, id int) {
	if id != 0 {
		to.PutInt(name, int64(id))
	}
}

// putValue sets an attribute unless there is no value.
func putValue(to pcommon.Map, name string, v trace.Value) {
	data, _ := v.Data()
	switch {
	case !v.IsPresent():
	case v.Kind() == trace.Text:
		putText(to, name, data)
	case v.Kind() == trace.Bytes:
		to.PutEmptyBytes(name).FromRaw(data)
	case v.Kind() == trace.Float:
		to.PutDouble(name, v.Float())
	case v.Kind() == trace.Unsigned && v.Uint() > math.MaxInt64:
		// OTLP's integers have a sign. The specification wants a text.
		to.PutStr(name, strconv.FormatUint(v.Uint(), 10))
	default:
		to.PutInt(name, v.Int())
	}
}

// validText returns bytes of a traced program as the UTF-8 that OTLP wants. A
// text that was cut may end within a character.
func validText[T string | []byte](text T) string {
	return strings.ToValidUTF8(string(text), "\uFFFD")
}

// putText sets an attribute to a text of any origin. All texts that leave go
// through here or through validText: a backend that checks them refuses the
// batch of a whole node for one that is not UTF-8.
func putText[T string | []byte](to pcommon.Map, name string, text T) {
	to.PutStr(name, validText(text))
}
