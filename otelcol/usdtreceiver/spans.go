// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/providers"
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
	pair       elfnote.PairPattern
	attributes []attribute
	kind       ptrace.SpanKind
	parent     *parent // nil for none
	options    trace.SessionOptions
}

// spanKinds are the kinds that spans can have, by their names.
var spanKinds = map[string]ptrace.SpanKind{"": ptrace.SpanKindInternal,
	"internal": ptrace.SpanKindInternal, "server": ptrace.SpanKindServer,
	"client": ptrace.SpanKindClient}

func (c *SpanConfig) parse() (*spans, error) {
	s := &spans{config: c}
	var err error
	if s.pair, err = elfnote.ParsePairPattern(c.Pair); err != nil {
		return nil, inField("pair", err)
	}
	if c.LongerThan < 0 {
		return nil, inField("longer_than", fmt.Errorf("%v is negative", c.LongerThan))
	}
	if s.attributes, err = parseAttributes(c.Attributes, true); err != nil {
		return nil, err
	}
	var known bool
	if s.kind, known = spanKinds[c.Kind]; !known {
		return nil, inField("kind",
			fmt.Errorf("%q is none of internal, server and client", c.Kind))
	}
	if s.parent, err = c.Parent.parse(true); err != nil {
		return nil, inField("parent", err)
	}
	s.options = sessionOptions(c.filter(), &trace.EventOptions{
		Spans:    []trace.Latency{{Pair: s.pair, By: c.MatchBy, DoneBy: c.MatchDoneBy}},
		Captures: captures(s.terms()), RingSize: c.BufferSize, Delay: delay,
	})
	return s, ofOption(s.options.Validate(), nil)
}

// terms are what is read of each call.
func (s *spans) terms() []term { return termsOf(s.attributes, s.parent) }

// exemplarsOf returns of which metrics the spans become exemplars, and has what
// these need read. Only spans with a caller do.
func (r *usdtReceiver) exemplarsOf(s *spans) (all []spanExemplars) {
	if r.metrics == nil || s.parent == nil {
		return nil
	}
	terms := s.terms()
	for _, m := range r.metrics.metrics {
		attributes, ok := exemplarsFor(m, s)
		if !ok {
			continue
		}
		more := append(slices.Clip(terms), termsOf(attributes, nil)...)
		options, events := s.options, *s.options.Events
		events.Captures = captures(more)
		options.Events = &events
		if options.Validate() != nil {
			continue // more than can be read of one call
		}
		terms, s.options = more, options
		all = append(all, spanExemplars{attributes, &m.exemplars})
	}
	return all
}

// filter is the condition on calls that become spans.
func (c *SpanConfig) filter() string {
	switch longer := fmt.Sprintf("duration >= %d", c.LongerThan.Nanoseconds()); {
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
	if c.Format != sqlcommenter && c.Format != traceparent {
		return nil, inField("format",
			fmt.Errorf("%q is neither %q nor %q", c.Format, sqlcommenter, traceparent))
	}
	t, err := parseTerm(c.From, span)
	if err != nil {
		return nil, inField("from", err)
	}
	if t.source != textTerm {
		return nil, inField("from", errors.New("a text is wanted, such as str(arg0)"))
	}
	if t.max == 0 {
		t.max = defaultParentText
	}
	return &parent{t, c.Format}, nil
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
		name := fmt.Sprintf("spans[%d]", i)
		parsed, err := r.config.Spans[i].parse()
		if err != nil {
			return inField(name, err)
		}
		to := r.exemplarsOf(parsed)
		s, err := r.open(name, &parsed.options,
			item{name: name, patterns: providers.Builtin().Patterns(parsed.pair), terms: parsed.terms()})
		if err != nil {
			return inField(name, err)
		}
		b := &spanBatch{source: s, spans: parsed, exemplars: to,
			before: make(map[[2]int]spanContext)}
		b.clear()
		r.begin = append(r.begin, func(ctx context.Context) { s.deliver(ctx, b) })
	}
	return nil
}

// spanBatch is spans that are sent together.
type spanBatch struct {
	*source
	spans     *spans
	all       ptrace.Traces
	scopes    map[*resource]ptrace.ScopeSpans
	exemplars []spanExemplars
	// before has the last span with a caller, by process and thread.
	before map[[2]int]spanContext
}

// maxBefore bounds for how many threads that is known.
const maxBefore = 4096

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
	only := b.spans.config.SampledOnly
	if joined && caller.flags&sampledFlag == 0 && (only == nil || *only) {
		return // nobody keeps the spans above it
	}
	r := b.resourceOf(e)
	scope := scopeOf(b.receiver, b.scopes, r, func() (ptrace.ResourceSpans, ptrace.ScopeSpans) {
		rs := b.all.ResourceSpans().AppendEmpty()
		return rs, rs.ScopeSpans().AppendEmpty()
	})
	span := ptrace.NewSpan() // a part of what is sent only when it is complete
	b.spans.fill(span, e)
	thread := [2]int{e.PID, e.TID}
	if joined {
		span.SetTraceID(caller.trace)
		span.SetParentSpanID(caller.span)
		span.SetFlags(uint32(caller.flags) | remoteParent)
		if len(b.before) == maxBefore {
			clear(b.before)
		}
		b.before[thread] = spanContext{caller.trace, span.SpanID(), caller.flags}
		for i := range b.exemplars {
			b.exemplars[i].offer(r, e, span, caller.flags)
		}
	} else if before, ok := b.before[thread]; ok {
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
		span.SetName(validText(e.Pair().String())) // as in postgresql:query
	}
	span.SetKind(s.kind)
	// From the wall clock's time of the end: the two would be computed apart,
	// and the difference has to be the duration.
	end := e.Time
	span.SetStartTimestamp(pcommon.NewTimestampFromTime(end.Add(-e.Duration)))
	span.SetEndTimestamp(pcommon.NewTimestampFromTime(end))
	if e.Failed {
		span.Status().SetCode(ptrace.StatusCodeError)
		span.Status().SetMessage(validText(e.Probe))
	}
	var id pcommon.SpanID
	binary.NativeEndian.PutUint64(id[:], 1+rand.Uint64N(1<<63)) // not 0
	span.SetSpanID(id)
	span.SetTraceID(newTraceID())
	for _, a := range s.attributes {
		a.term.put(span.Attributes(), a.name, e)
	}
}

// remoteParent are the flags of OTLP that say that it is known whether the
// parent is of another process, and that it is.
const remoteParent = 1<<8 | 1<<9

func newTraceID() (id pcommon.TraceID) {
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], 1+rand.Uint64N(1<<63)) // not 0
	return id
}

// spanContext is what a W3C traceparent says.
type spanContext struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
	flags byte
}

// parseTraceparent reads a header of the form
// VERSION-TRACE-SPAN-FLAGS. A later version may have more at its end.
func parseTraceparent(header string) (c spanContext, ok bool) {
	const length = len("00-") + 32 + 1 + 16 + len("-01")
	if len(header) < length || header[2] != '-' || header[35] != '-' || header[52] != '-' {
		return c, false
	}
	version, ok := lowerHex(header[:2], 1)
	switch {
	case !ok || version[0] == 0xff:
		return c, false
	case len(header) > length && (version[0] == 0 || header[length] != '-'):
		return c, false
	}
	trace, ok1 := lowerHex(header[3:35], 16)
	span, ok2 := lowerHex(header[36:52], 8)
	flags, ok3 := lowerHex(header[53:55], 1)
	if !ok1 || !ok2 || !ok3 {
		return c, false
	}
	copy(c.trace[:], trace)
	copy(c.span[:], span)
	c.flags = flags[0]
	return c, !c.trace.IsEmpty() && !c.span.IsEmpty()
}

// lowerHex decodes hexadecimal digits. The header has no capital ones.
func lowerHex(s string, size int) ([]byte, bool) {
	b, err := hex.DecodeString(s)
	return b, err == nil && len(b) == size && s == strings.ToLower(s)
}

// commentParent reads the traceparent from the comment that sqlcommenter adds
// to a statement, as its last or first part:
//
//	SELECT 1 /*db_driver='x',traceparent='00-...-01'*/
//
// A comment elsewhere is not read: it may be a part of a text in quotes.
func commentParent(statement []byte, complete bool) (spanContext, bool) {
	trimmed := bytes.TrimRight(statement, " \t\r\n;")
	// Without the end of the comment: its star is none of a beginning "/*".
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
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok || strings.TrimSpace(key) != "traceparent" {
			continue
		}
		value = strings.Trim(strings.TrimSpace(value), "'")
		if value, err := url.PathUnescape(value); err == nil {
			return parseTraceparent(value)
		}
	}
	return spanContext{}, false
}
