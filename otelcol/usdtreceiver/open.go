// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
)

// ageSuffix makes the name of the metric that has the greatest age of the calls
// that another one counts.
const ageSuffix = ".max_age"

// openMetric is a MetricConfig with Open: how many calls have started and not
// ended, and for how long the oldest has been going on. Calls that end are of
// no interest, so it has a session of its own that sends hardly any event.
type openMetric struct {
	*source
	config     *MetricConfig
	pair       elfnote.PairPattern
	attributes []attribute
	options    trace.SessionOptions
	known      map[seriesID]*openSeries // that were sent the last time
}

// openSeries is what is known of the open calls with the same attributes.
type openSeries struct {
	resource   *resource // nil for what is over the limit
	attributes pcommon.Map
	count      int64
	age        time.Duration
}

func (c *MetricConfig) parseOpen() (*openMetric, error) {
	if c.Count+c.Sum+c.Histogram+c.Pair+c.Value+c.Unit != "" || c.Monotonic || c.PerDoubling != 0 {
		return nil, errors.New("open goes with longer_than, where, match_by, match_done_by and attributes alone")
	}
	m := &openMetric{config: c}
	var err error
	if m.pair, err = elfnote.ParsePairPattern(c.Open); err != nil {
		return nil, inField("open", err)
	}
	if c.LongerThan < 0 {
		return nil, inField("longer_than", fmt.Errorf("%v is negative", c.LongerThan))
	}
	if m.attributes, err = parseAttributes(c.Attributes, false); err != nil {
		return nil, err
	}
	m.options = sessionOptions(c.Where, &trace.EventOptions{
		Spans:    []trace.Latency{{Pair: m.pair, By: c.MatchBy, DoneBy: c.MatchDoneBy}},
		Captures: captures(termsOf(m.attributes, nil)),
		Sampling: 1 << 30, RingSize: 64 << 10, // hardly any event comes
	})
	return m, ofOption(m.options.Validate(), nil)
}

// collect adds the points of the calls that go on now. A series without a call
// any more is 0 once, so that no backend goes on with what it was.
func (m *openMetric) collect(b *metricsBuilder, at time.Time) error {
	open, err := m.session.OpenCalls(m.config.LongerThan)
	if err != nil {
		return err
	}
	now := make(map[seriesID]*openSeries)
	for i := range open {
		m.convert(func() { m.add(now, open[i]) })
	}
	for id, s := range m.known {
		if now[id] == nil && s.count > 0 {
			s.count, s.age = 0, 0
			now[id] = s
		}
	}
	m.known = now
	gauges := make(map[*resource][2]pmetric.Gauge) // of their number, and of the greatest age
	for _, s := range now {
		to, ok := gauges[s.resource]
		if !ok {
			c := m.config
			to[0] = b.metric(s.resource, c.Name, c.Description, "{call}").SetEmptyGauge()
			to[1] = b.metric(s.resource, c.Name+ageSuffix, c.Description, "s").SetEmptyGauge()
			gauges[s.resource] = to
		}
		count, age := to[0].DataPoints().AppendEmpty(), to[1].DataPoints().AppendEmpty()
		count.SetIntValue(s.count)
		age.SetDoubleValue(s.age.Seconds())
		for _, p := range []pmetric.NumberDataPoint{count, age} {
			p.SetTimestamp(pcommon.NewTimestampFromTime(at))
			s.attributes.CopyTo(p.Attributes())
		}
	}
	return nil
}

// add counts a call.
func (m *openMetric) add(to map[seriesID]*openSeries, c *trace.Event) {
	s := &openSeries{resource: m.resourceOf(c.Start), attributes: pcommon.NewMap()}
	for _, a := range m.attributes {
		a.term.put(s.attributes, a.name, c.Start)
	}
	id := idOf(s.resource, s.attributes)
	if to[id] == nil && len(to) >= m.receiver.config.CardinalityLimit-1 {
		s = &openSeries{attributes: overflowAttributes()}
		id = idOf(nil, s.attributes)
	}
	if to[id] == nil {
		to[id] = s
	}
	to[id].count++
	to[id].age = max(to[id].age, c.Duration)
}
