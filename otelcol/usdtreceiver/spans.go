// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/trace"
)

// Formats of a [ParentConfig].
const (
	sqlcommenter = "sqlcommenter"
	traceparent  = "traceparent"
)

// spans is a SpanConfig that has been parsed.
type spans struct {
	config     *SpanConfig
	pair       defs.PairPattern
	attributes []attribute
	kind       ptrace.SpanKind
	parent     *parent // nil for none
	exits      bool    // calls inside which their process ends are spans, too
	terms      []term  // what is read of each call
	options    *trace.SessionOptions
}

// spanKinds are the kinds that spans can have, by their names.
var spanKinds = map[string]ptrace.SpanKind{"": ptrace.SpanKindInternal,
	"internal": ptrace.SpanKindInternal, "server": ptrace.SpanKindServer,
	"client": ptrace.SpanKindClient}

func (c *SpanConfig) parse() (*spans, error) {
	kind, known := spanKinds[c.Kind]
	pair, err := defs.ParsePairPattern(c.Pair)
	if err := cmp.Or(
		inField("pair", err),
		wrong(c.LongerThan < 0, "longer_than: %v is negative", c.LongerThan),
		wrong(!known, "kind: %q is none of internal, server and client", c.Kind),
	); err != nil {
		return nil, err
	}
	s := &spans{config: c, pair: pair, kind: kind}
	if s.attributes, s.parent, err = parseTerms(c.Attributes, c.Parent, true); err != nil {
		return nil, err
	}
	s.terms = termsOf(s.attributes, s.parent)
	// Else a call that has failed long ago would end with its process.
	s.exits = defs.Builtin().KnowsFailures(pair)
	s.options = sessionOptions(c.filter(), &trace.EventOptions{
		Spans: []trace.Latency{{Pair: c.Pair, By: c.MatchBy}}, Exits: s.exits,
		Captures: captures(s.terms), RingSize: c.BufferSize, Delay: delay,
	})
	return s, ofOption(s.options.Validate())
}

// exemplarsOf returns the metrics that the spans become exemplars of, and has
// what the metrics' attributes need captured. Only spans with a caller become
// exemplars.
func (r *usdtReceiver) exemplarsOf(s *spans) (all []spanExemplars) {
	if s.parent == nil {
		return nil
	}
	read := s.terms
	for _, m := range r.metrics {
		attributes, ok := exemplarsFor(m, s)
		if !ok {
			continue
		}
		before := s.options.Events.Captures
		more := append(slices.Clip(read), termsOf(attributes, nil)...)
		s.options.Events.Captures = captures(more)
		if s.options.Validate() != nil { // more than can be read of one call
			s.options.Events.Captures = before
			continue
		}
		read = more
		all = append(all, spanExemplars{attributes, &m.exemplars})
	}
	return all
}

// filter is the condition on calls that become spans.
func (c *SpanConfig) filter() string {
	switch longer := fmt.Sprintf("duration >= %dns", c.LongerThan.Nanoseconds()); {
	case c.LongerThan == 0:
		return c.Where
	case c.Where == "":
		return longer
	default:
		return longer + " && (" + c.Where + ")"
	}
}

// parent is a ParentConfig that has been parsed.
type parent struct {
	term
	format string
}

// parse returns nil for nil. Only spans have a start.
func (c *ParentConfig) parse(span bool) (*parent, error) {
	if c == nil {
		return nil, nil
	}
	t, err := parseTerm(c.From, span)
	if t.max == 0 {
		t.max = defaultParentText
	}
	return &parent{t, c.Format}, inField("parent", cmp.Or(
		wrong(c.Format != sqlcommenter && c.Format != traceparent,
			"format: %q is neither %q nor %q", c.Format, sqlcommenter, traceparent),
		inField("from", err),
		wrong(t.source != textTerm, "from: a string is wanted, such as str(arg0)"),
	))
}

// of returns the context that an event has, if there is one.
func (p *parent) of(e *trace.Event) (spanContext, bool) {
	if p == nil {
		return spanContext{}, false
	}
	text, complete := p.text(e)
	if p.format == traceparent {
		return parseTraceparent(string(text))
	}
	return commentParent(text, complete)
}

func (r *usdtReceiver) startSpans() error {
	for i := range r.config.Spans {
		parsed, err := r.config.Spans[i].parse()
		if err != nil {
			return err
		}
		b := &spanBatch{spans: parsed, exemplars: r.exemplarsOf(parsed),
			before: make(map[[2]int]callerSpan)}
		b.source, err = r.openEvents(b, parsed.options, item{name: fmt.Sprintf("spans[%d]", i),
			patterns: defs.Builtin().Patterns(parsed.pair), terms: parsed.terms, exits: parsed.exits})
		if err != nil {
			return err
		}
		for at, m := range r.metrics {
			if m.source == nil && r.config.Spans[i].haveCallsOf(m) {
				m.source = b.source
				b.items = append(b.items, item{name: fmt.Sprintf("metrics[%d]", at),
					patterns: m.patterns, terms: termsOf(m.terms, nil), hits: new(atomic.Uint64)})
			}
		}
	}
	return nil
}

// haveCallsOf reports whether a session of the spans knows what a metric of
// open calls wants to know. A session of its own would run a second program at
// each hit.
func (c *SpanConfig) haveCallsOf(m *metric) bool {
	return m.kind == ofOpen && m.config.Open == c.Pair && m.config.MatchBy == c.MatchBy &&
		m.config.Where == "" && c.Where == "" && c.LongerThan <= m.config.LongerThan &&
		len(m.options.Events.Captures) == 0
}

// spanBatch is spans that are sent together.
type spanBatch struct {
	*source
	spans     *spans
	all       ptrace.Traces
	scopes    map[*resource]ptrace.ScopeSpans
	exemplars []spanExemplars
	// before has the last span with a caller, by process and thread.
	before map[[2]int]callerSpan
}

// callerSpan is a span with a caller.
type callerSpan struct {
	spanContext
	end time.Duration
}

const (
	// maxBefore bounds the threads in before.
	maxBefore = 4096

	// maxBetween is how long after such a span another one may belong to it. A
	// connection of a pool soon has another caller.
	maxBetween = 10 * time.Second
)

func (b *spanBatch) clear() {
	b.all, b.scopes = ptrace.NewTraces(), make(map[*resource]ptrace.ScopeSpans)
}

func (b *spanBatch) count() int { return b.all.SpanCount() }

func (b *spanBatch) send(ctx context.Context) error {
	n := b.count()
	ctx = b.receiver.report.StartTracesOp(ctx)
	// Consumers may change what they get, even if they refuse it.
	sent := ptrace.NewTraces()
	b.all.CopyTo(sent)
	err := b.receiver.next.traces.ConsumeTraces(ctx, sent)
	b.receiver.report.EndTracesOp(ctx, format, n, err)
	return err
}

func (b *spanBatch) add(e *trace.Event) {
	if e.Start == nil {
		return
	}
	caller, joined := b.spans.parent.of(e)
	only, thread := b.spans.config.SampledOnly, [2]int{e.PID, e.TID}
	if joined && caller.flags&sampledFlag == 0 && (only == nil || *only) {
		delete(b.before, thread) // what follows is of this caller
		return                   // the spans above it are not kept
	}
	r := b.resourceOf(e)
	scope := scopeOf(b.receiver, b.scopes, r, func() (ptrace.ResourceSpans, ptrace.ScopeSpans) {
		rs := b.all.ResourceSpans().AppendEmpty()
		return rs, rs.ScopeSpans().AppendEmpty()
	})
	span := ptrace.NewSpan() // a part of what is sent only when it is complete
	b.spans.fill(span, e)
	if joined {
		span.SetTraceID(caller.trace)
		span.SetParentSpanID(caller.span)
		span.SetFlags(uint32(caller.flags) | remoteParent)
		if len(b.before) == maxBefore {
			clear(b.before)
		}
		b.before[thread] = callerSpan{
			spanContext{caller.trace, span.SpanID(), caller.flags}, e.Monotonic}
		for i := range b.exemplars {
			if e.Ended != "" { // no point has its time
				break
			}
			b.exemplars[i].offer(r, e, span, caller.flags)
		}
	} else if before, ok := b.before[thread]; ok &&
		e.Monotonic-e.Duration-before.end <= maxBetween {
		// As a COMMIT follows the statements of a caller.
		link := span.Links().AppendEmpty()
		link.SetTraceID(before.trace)
		link.SetSpanID(before.span)
		link.SetFlags(uint32(before.flags))
	}
	r.fillThread(span.Attributes(), e)
	span.MoveTo(scope.Spans().AppendEmpty())
}

// fill makes a span of a call, in a trace of its own.
func (s *spans) fill(span ptrace.Span, e *trace.Event) {
	span.SetName(s.config.Name)
	if s.config.Name == "" {
		span.SetName(validText(e.Pair())) // as in postgresql:query
	}
	span.SetKind(s.kind)
	// Both are from the wall clock's time of the end: converted apart, their
	// difference might not be the duration.
	end := e.Time
	span.SetStartTimestamp(pcommon.NewTimestampFromTime(end.Add(-e.Duration)))
	span.SetEndTimestamp(pcommon.NewTimestampFromTime(end))
	if e.Failed {
		span.Status().SetCode(ptrace.StatusCodeError)
		span.Status().SetMessage(validText(cmp.Or(e.Ended, e.Probe)))
	}
	var id pcommon.SpanID
	binary.NativeEndian.PutUint64(id[:], 1+rand.Uint64N(1<<63)) // not 0
	span.SetSpanID(id)
	span.SetTraceID(newTraceID())
	for _, a := range s.attributes {
		a.term.put(span.Attributes(), a.name, e)
	}
}

// remoteParent are OTLP's flags for a parent that is known to be in another
// process.
const remoteParent = 1<<8 | 1<<9

func newTraceID() (id pcommon.TraceID) {
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], 1+rand.Uint64N(1<<63)) // not 0
	return id
}

// spanContext has the fields of a W3C traceparent.
type spanContext struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
	flags byte
}

// traceparentHeader is VERSION-TRACE-SPAN-FLAGS. A later version may have more
// at its end.
var traceparentHeader = regexp.MustCompile(
	`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$`)

func parseTraceparent(header string) (c spanContext, ok bool) {
	m := traceparentHeader.FindStringSubmatch(header)
	if m == nil || m[1] == "ff" || m[1] == "00" && m[5] != "" {
		return c, false
	}
	var flags [1]byte
	for i, to := range [][]byte{c.trace[:], c.span[:], flags[:]} {
		_, _ = hex.Decode(to, []byte(m[2+i])) // digits that fit
	}
	c.flags = flags[0]
	return c, !c.trace.IsEmpty() && !c.span.IsEmpty()
}

// commentParent reads the traceparent from the comment that sqlcommenter adds
// to a statement, as its last or first part:
//
//	SELECT 1 /*db_driver='x',traceparent='00-...-01'*/
//
// A comment elsewhere is not read: it may be a part of a text in quotes.
func commentParent(statement []byte, complete bool) (spanContext, bool) {
	trimmed := bytes.TrimRight(statement, " \t\r\n;")
	// The end of the comment is cut first: the star of "/*/" must not count
	// twice.
	if body, ok := bytes.CutSuffix(trimmed, []byte("*/")); ok && complete {
		if at := bytes.LastIndex(body, []byte("/*")); at >= 0 {
			if c, ok := inComment(body[at+2:]); ok {
				return c, true
			}
		}
	}
	trimmed = bytes.TrimLeft(statement, " \t\r\n")
	if rest, ok := bytes.CutPrefix(trimmed, []byte("/*")); ok {
		if comment, _, ok := bytes.Cut(rest, []byte("*/")); ok {
			return inComment(comment)
		}
	}
	return spanContext{}, false
}

// inComment reads KEY='VALUE' pairs, whose values are URL-encoded.
func inComment(comment []byte) (spanContext, bool) {
	for pair := range strings.SplitSeq(string(comment), ",") {
		key, value, _ := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.Trim(strings.TrimSpace(value), "'"))
		if err == nil && strings.TrimSpace(key) == "traceparent" {
			return parseTraceparent(value)
		}
	}
	return spanContext{}, false
}
