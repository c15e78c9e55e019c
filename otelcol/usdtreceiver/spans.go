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
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/gousdt/gousdt/container"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
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
	parent     *term // nil for none
	options    trace.SessionOptions
}

func (c *SpanConfig) parse() (*spans, error) {
	s := &spans{config: c}
	var err error
	if s.pair, err = elfnote.ParsePairPattern(c.Pair); err != nil {
		return nil, fmt.Errorf("pair: %w", err)
	}
	if c.LongerThan < 0 {
		return nil, fmt.Errorf("longer_than: %v is negative", c.LongerThan)
	}
	if s.attributes, err = parseAttributes(c.Attributes, true); err != nil {
		return nil, err
	}
	if err := s.parseParent(); err != nil {
		return nil, fmt.Errorf("parent: %w", err)
	}
	s.options = trace.SessionOptions{
		Spans:    []trace.Latency{{Pair: s.pair, By: c.MatchBy, DoneBy: c.MatchDoneBy}},
		Filter:   c.filter(),
		Captures: captures(s.terms()), Definitions: providers.Builtin(),
		// See metricOptions.
		CgroupIDs: true, RingSize: c.BufferSize, Delay: delay, Containers: new(container.Cgroups),
	}
	return s, s.options.Validate()
}

// terms are what is read of each call.
func (s *spans) terms() []term {
	terms := make([]term, 0, len(s.attributes)+1)
	for _, a := range s.attributes {
		terms = append(terms, a.term)
	}
	if s.parent != nil {
		terms = append(terms, *s.parent)
	}
	return terms
}

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
		more := terms
		for _, a := range attributes {
			more = append(more, a.term)
		}
		options := s.options
		options.Captures = captures(more)
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

func (s *spans) parseParent() error {
	c := s.config.Parent
	if c == nil {
		return nil
	}
	if c.Format != sqlcommenter && c.Format != traceparent {
		return fmt.Errorf("format: %q is neither %q nor %q", c.Format, sqlcommenter, traceparent)
	}
	t, err := parseTerm(c.From, true)
	if err != nil {
		return fmt.Errorf("from: %w", err)
	}
	if t.source != textTerm {
		return errors.New("from: a text is wanted, such as str(arg0)")
	}
	if t.max == 0 {
		t.max = defaultParentText
	}
	s.parent = &t
	return nil
}

func (c *SpanConfig) validate() error {
	_, err := c.parse()
	return named(c.Pair, err)
}

func (r *usdtReceiver) startSpans(ctx context.Context) error {
	for i := range r.config.Spans {
		name := fmt.Sprintf("spans[%d]", i)
		parsed, err := r.config.Spans[i].parse()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		to := r.exemplarsOf(parsed)
		s, err := r.open(name, &parsed.options,
			item{name, providers.Builtin().Patterns(parsed.pair), parsed.terms()})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		b := &spanBatch{source: s, spans: parsed, exemplars: to}
		b.clear()
		r.begin = append(r.begin, func() { s.deliver(ctx, b) })
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
}

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
	err := b.receiver.nextTraces.ConsumeTraces(ctx, sent)
	b.receiver.report.EndTracesOp(ctx, format, n, err)
	return err
}

func (b *spanBatch) add(e *trace.Event) {
	if e.Start == nil {
		return
	}
	r := b.resourceOf(e)
	scope, ok := b.scopes[r]
	if !ok {
		rs := b.all.ResourceSpans().AppendEmpty()
		r.fill(rs.Resource())
		scope = rs.ScopeSpans().AppendEmpty()
		scope.Scope().SetName(metadata.ScopeName)
		b.scopes[r] = scope
	}
	span := ptrace.NewSpan() // a part of what is sent only when it is complete
	if parent, ok := b.spans.fill(span, e); ok {
		for i := range b.exemplars {
			b.exemplars[i].offer(r, e, span, parent.flags)
		}
	}
	r.fillThread(span.Attributes(), e)
	span.MoveTo(scope.Spans().AppendEmpty())
}

// fill makes a span of a call. It returns the caller's context, if there is
// one.
func (s *spans) fill(span ptrace.Span, e *trace.Event) (parent spanContext, joined bool) {
	span.SetName(s.config.Name)
	if s.config.Name == "" {
		span.SetName(callName(e))
	}
	span.SetKind(ptrace.SpanKindInternal)
	// From the wall clock's time of the end: the two would be computed apart,
	// and the difference has to be the duration.
	end := e.Time
	span.SetStartTimestamp(pcommon.NewTimestampFromTime(end.Add(-e.Duration)))
	span.SetEndTimestamp(pcommon.NewTimestampFromTime(end))
	if e.Failed {
		span.Status().SetCode(ptrace.StatusCodeError)
		span.Status().SetMessage(validText(e.Probe))
	}
	span.SetSpanID(newSpanID())
	if parent, joined = s.parentOf(e); joined {
		span.SetTraceID(parent.trace)
		span.SetParentSpanID(parent.span)
		span.SetFlags(uint32(parent.flags) | remoteParent)
	} else {
		span.SetTraceID(newTraceID())
	}
	for _, a := range s.attributes {
		a.term.put(span.Attributes(), a.name, e)
	}
	return parent, joined
}

// remoteParent are the flags of OTLP that say that it is known whether the
// parent is of another process, and that it is.
const remoteParent = 1<<8 | 1<<9

func (s *spans) parentOf(e *trace.Event) (spanContext, bool) {
	if s.parent == nil {
		return spanContext{}, false
	}
	text, complete := s.parent.text(e)
	if s.config.Parent.Format == traceparent {
		return parseTraceparent(string(text))
	}
	return commentParent(text, complete)
}

// callName returns what the two probes of a call have in common, as in
// postgresql:query.
func callName(e *trace.Event) string {
	return validText(e.Pair().String())
}

func newTraceID() (id pcommon.TraceID) {
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], 1+rand.Uint64N(1<<63)) // not 0
	return id
}

func newSpanID() (id pcommon.SpanID) {
	binary.NativeEndian.PutUint64(id[:], 1+rand.Uint64N(1<<63))
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
