// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
)

// argumentPrefix begins the names of attributes that are arguments.
const argumentPrefix = "usdt.argument."

// logs is a LogConfig that has been parsed.
type logs struct {
	config     *LogConfig
	event      elfnote.Pattern
	attributes []attribute
	parent     *parent // nil for none
	terms      []term  // what is read of each hit
	options    *trace.SessionOptions
}

func (c *LogConfig) parse() (*logs, error) {
	l := &logs{config: c}
	var err error
	if l.event, err = elfnote.ParsePattern(c.Event); err != nil {
		return nil, inField("event", err)
	}
	if l.attributes, l.parent, err = parseTerms(c.Attributes, c.Parent, false); err != nil {
		return nil, err
	}
	l.terms = termsOf(l.attributes, l.parent)
	l.options = sessionOptions(c.Where, &trace.EventOptions{Captures: captures(l.terms),
		RingSize: c.BufferSize, Delay: delay, SamplePerSecond: c.RateLimit})
	if len(l.attributes) == 0 {
		l.options.Events.Captures = append(l.options.Events.Captures,
			trace.Capture{Max: defaultText}) // of all texts
	}
	return l, ofOption(l.options.Validate())
}

func (r *usdtReceiver) startLogs() error {
	for i := range r.config.Logs {
		parsed, err := r.config.Logs[i].parse()
		if err != nil {
			return err
		}
		b := &logBatch{logs: parsed, limit: limiter{limit: parsed.config.RateLimit}}
		b.source, err = r.openEvents(b, parsed.options, item{name: fmt.Sprintf("logs[%d]", i),
			patterns: []elfnote.Pattern{parsed.event}, terms: parsed.terms})
		if err != nil {
			return err
		}
	}
	return nil
}

// logBatch is log records that are sent together.
type logBatch struct {
	*source
	logs   *logs
	limit  limiter
	all    plog.Logs
	scopes map[*resource]plog.ScopeLogs
}

func (b *logBatch) clear() {
	b.all, b.scopes = plog.NewLogs(), make(map[*resource]plog.ScopeLogs)
}

func (b *logBatch) count() int { return b.all.LogRecordCount() }

func (b *logBatch) send(ctx context.Context) error {
	n := b.count()
	ctx = b.receiver.report.StartLogsOp(ctx)
	// Consumers may change what they get, even if they refuse it.
	sent := plog.NewLogs()
	b.all.CopyTo(sent)
	err := b.receiver.next.logs.ConsumeLogs(ctx, sent)
	b.receiver.report.EndLogsOp(ctx, format, n, err)
	return err
}

func (b *logBatch) add(e *trace.Event) {
	hits, ok := b.limit.let(e)
	if !ok {
		b.limited.Add(1)
		return
	}
	r := b.resourceOf(e)
	scope := scopeOf(b.receiver, b.scopes, r, func() (plog.ResourceLogs, plog.ScopeLogs) {
		rl := b.all.ResourceLogs().AppendEmpty()
		return rl, rl.ScopeLogs().AppendEmpty()
	})
	record := plog.NewLogRecord() // a part of what is sent only when it is complete
	b.logs.fill(record, e, hits)
	r.fillThread(record.Attributes(), e)
	record.MoveTo(scope.LogRecords().AppendEmpty())
}

func (l *logs) fill(record plog.LogRecord, e *trace.Event, hits uint64) {
	record.SetTimestamp(pcommon.NewTimestampFromTime(e.Time))
	record.SetObservedTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	record.SetEventName(validText(e.Probe))
	record.Body().SetStr(validText(e.String()))
	if of, ok := l.parent.of(e); ok {
		record.SetTraceID(of.trace)
		record.SetSpanID(of.span)
		record.SetFlags(plog.LogRecordFlags(of.flags))
	}
	to := record.Attributes()
	if l.config.RateLimit > 0 {
		to.PutInt(attributeHits, int64(hits))
	}
	for _, a := range l.attributes {
		a.term.put(to, a.name, e)
	}
	for i, v := range e.Args {
		if len(l.attributes) > 0 {
			break
		}
		name := argumentPrefix + validText(e.Site.Argument(i).Name)
		if text, _ := v.Data(); text != nil && v.Kind() != trace.Bytes {
			putText(to, name, text)
		} else {
			putValue(to, name, v)
		}
	}
}

// limiter limits the events per second of all processors: the kernel has
// limited those of each. The next event of a process and site stands for their
// hits that are left out.
type limiter struct {
	limit  int // 0 for none
	second time.Duration
	passed int
	left   map[limited]uint64
}

type limited struct {
	pid  int
	site *trace.Site
}

// maxLeft bounds what a limiter remembers. If there is more, no event stands
// for the hits that were left out so far.
const maxLeft = 4096

// let returns how many hits an event stands for; ok is false if the event is
// left out.
func (l *limiter) let(e *trace.Event) (hits uint64, ok bool) {
	if l.limit == 0 {
		return e.Weight, true
	}
	if second := e.Monotonic.Truncate(time.Second); second > l.second {
		l.second, l.passed = second, 0
	}
	key := limited{e.PID, e.Site}
	hits = e.Weight + l.left[key]
	if l.passed == l.limit {
		if l.left == nil || len(l.left) == maxLeft {
			l.left = make(map[limited]uint64)
		}
		l.left[key] = hits
		return 0, false
	}
	l.passed++
	delete(l.left, key)
	return hits, true
}
