// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"context"
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

	// delay is how long the kernel keeps an event from waking the receiver,
	// which would cost the traced program more than all else.
	delay = 100 * time.Millisecond

	// Between tries to send what was refused for now.
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

// deliver sends the events of a session until it is detached and all have come.
// While they are refused, as by a memory limiter, they wait in the kernel's
// buffer. What finds no room there is lost, and counted.
//
// Ending ends waiting.
func (s *source) deliver(ending context.Context, b batch) {
	events := make(chan *trace.Event, maxBatch)
	s.receiver.delivering.Go(func() {
		defer close(events)
		for event, err := range s.session.Events(context.Background()) {
			if err != nil {
				s.receiver.logger.Warn("events are missing", zap.String("source", s.name),
					zap.Error(err))
				continue
			}
			events <- event
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

// convert has a hit, or what was counted of some, made a part of what is sent.
// What processes say goes through here: whatever mistake there is in reading
// it, one of them must not end the Collector. Nothing else recovers.
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
		err := b.send(context.WithoutCancel(ending))
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

// resourceOf returns the resource of an event.
func (s *source) resourceOf(e *trace.Event) *resource {
	ps := s.receiver.processes
	if ps.kind == ByProcess && e.PID != 0 && !ps.knows(e.PID) {
		s.receiver.sync(e.PID)
	}
	return ps.resourceOf(e.PID, e.CgroupID)
}

// Attributes of spans and log records.
const (
	attributeThread = "thread.id"
	// attributeHits is how many hits a record stands for.
	attributeHits = "usdt.hits"
)

// fillThread says which thread an event was in, and which process if the
// resource is none.
func (r *resource) fillThread(to pcommon.Map, e *trace.Event) {
	putID(to, attributeThread, e.TID)
	if r.process == nil {
		putID(to, attributePID, e.PID)
	}
}
