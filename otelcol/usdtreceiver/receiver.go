// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receiverhelper"
	"go.uber.org/zap"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// consumers are set before the receiver starts. One is nil if there is no
// pipeline for its kind of data.
type consumers struct {
	metrics  consumer.Metrics
	traces   consumer.Traces
	logs     consumer.Logs
	profiles xconsumer.Profiles
}

// kinds says for which kinds of data there is a pipeline.
func (c *consumers) kinds() [4]bool {
	return [...]bool{c.metrics != nil, c.traces != nil, c.logs != nil, c.profiles != nil}
}

// format is the name of this kind of data in the Collector's own metrics.
const format = "usdt"

// collector sends what the kernel has added up since the last time, or forgets
// what has gone.
type collector struct {
	what    string
	collect func(context.Context) error
}

// usdtReceiver is the receiver.
type usdtReceiver struct {
	config   *Config
	settings receiver.Settings
	logger   *zap.Logger
	next     consumers

	host       component.Host
	report     *receiverhelper.ObsReport
	cgroups    *proc.Cgroups // nil if there is no hierarchy of version 2
	processes  *processes
	measuring  bool // what programs cost
	closers    []io.Closer
	watch      *watch.Watch // of all sources, so that processes are scanned once
	sources    []*source
	begin      []func(context.Context) // start to send events, once the sources are watched
	collectors []collector
	metrics    []*metric
	aggregated []*metric // those but of open, which one session has
	accepted   time.Time // when a consumer has last taken metrics
	telemetry  *metadata.TelemetryBuilder

	stop       context.CancelFunc
	running    sync.WaitGroup  // goroutines that end with stop
	pausing    context.Context // done when no more events are wanted
	pause      context.CancelFunc
	delivering sync.WaitGroup  // goroutines that end when all events before pause have been sent
	sending    context.Context // done when consumers that block are to give up
	abandon    context.CancelFunc
}

func newReceiver(settings receiver.Settings, config *Config) *usdtReceiver {
	return &usdtReceiver{config: config, settings: settings, logger: settings.Logger,
		stop: func() {}, pause: func() {}, abandon: func() {}}
}

// lastWait bounds how long the receiver still tries to send refused events when
// it ends, and then how long consumers may block.
const lastWait = 5 * time.Second

// source is a session, and the probes that it is for.
type source struct {
	name     string // for logs and the receiver's own metrics
	session  *trace.Session
	items    []item
	receiver *usdtReceiver
	refused  atomic.Uint64 // events that the pipeline has refused for good
	limited  atomic.Uint64 // events that were over the limit of all processors

	mismatched  bool          // it was logged; warn's
	unframed    bool          // as mismatched
	unconverted atomic.Uint64 // events that convert has failed with
	unsent      bool          // no event is wanted, see ofOpen

	costs costs
}

// item is an entry of the configuration, such as metrics[0]. A source is for
// one, or for several of a kind.
type item struct {
	name     string
	patterns []elfnote.Pattern
	terms    []term         // what it reads of events
	hits     *atomic.Uint64 // hits that the kernel has counted, or that came as events
	exits    bool           // calls inside which a process ends are sent, too
}

func (r *usdtReceiver) start(_ context.Context, host component.Host) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	r.host = host
	// Needed before Linux 5.11. Without the privilege the session fails, too,
	// and says so better. A sandbox may deny it where it is not needed.
	if err := rlimit.RemoveMemlock(); err != nil && !errors.Is(err, os.ErrPermission) {
		r.logger.Warn("the limit on locked memory cannot be lifted, which Linux before 5.11 needs",
			zap.Error(err))
	}
	if r.cgroups, err = proc.WatchCgroups(""); err != nil {
		r.logger.Warn("containers are known by their processes only", zap.Error(err))
		r.cgroups = nil
	} else {
		r.closers = append(r.closers, r.cgroups)
		if err := r.cgroups.Err(); err != nil {
			r.logger.Warn("containers that end soon may not be known", zap.Error(err))
		}
	}
	r.processes = newProcesses(r.config.Resource, "", r.cgroups)

	starts := []func() error{r.startMetrics, r.startSpans, r.startLogs, r.startProfiles}
	for i, wanted := range r.next.kinds() {
		if !wanted {
			continue
		}
		if err := starts[i](); err != nil {
			return err
		}
	}
	r.collectors = append(r.collectors, collector{"processes", func(context.Context) error {
		age := max(r.config.EndAfter, keepGone) + r.config.CollectionInterval
		r.processes.forget(time.Now().Add(-age))
		return nil
	}})
	// One watch for the probes of all sources, wherever they are.
	var parts []watch.Part[*trace.Attachment]
	for _, s := range r.sources {
		of := s.session.Part()
		of.Name = s.name
		for _, i := range s.items {
			of.Patterns = append(of.Patterns, i.patterns...)
		}
		parts = append(parts, of)
	}
	r.watch, err = watch.New(&watch.Options{Mapped: r.processes.changed,
		DebugFiles: true, After: r.config.AttachAfter}, r.changed, parts...)
	if err != nil {
		return err
	}
	return r.run()
}

// run starts to send the data of all that is attached to the consumers.
func (r *usdtReceiver) run() (err error) {
	if r.report, err = receiverhelper.NewObsReport(receiverhelper.ObsReportSettings{
		ReceiverID: r.settings.ID, Transport: "usdt", ReceiverCreateSettings: r.settings,
	}); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.pausing, r.pause = context.WithCancel(context.Background())
	r.sending, r.abandon = context.WithCancel(context.Background())
	r.running.Go(func() {
		if err := r.watch.Run(ctx, r.config.ScanInterval); ctx.Err() == nil &&
			!errors.Is(err, os.ErrClosed) {
			componentstatus.ReportStatus(r.host,
				componentstatus.NewPermanentErrorEvent(fmt.Errorf("scanning processes: %w", err)))
		}
	})
	r.running.Go(func() { r.warn(ctx) })
	for _, begin := range r.begin {
		begin(ctx)
	}
	for _, c := range r.collectors {
		r.running.Go(func() {
			ticker := time.NewTicker(r.config.CollectionInterval)
			defer ticker.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
				if err := c.collect(ctx); err != nil && ctx.Err() == nil {
					r.logger.Error(c.what+" were not sent", zap.Error(err))
				}
			}
		})
	}
	return r.observe()
}

// statsRunTime is BPF_STATS_RUN_TIME of linux/bpf.h.
const statsRunTime = 0

// open makes a session for the probes of some items.
func (r *usdtReceiver) open(
	name string, opts *trace.SessionOptions, items ...item,
) (*source, error) {
	opts.Containers = r.cgroups
	if r.config.MeasureCost && !r.measuring {
		statistics, err := ebpf.EnableStats(statsRunTime)
		if err != nil {
			return nil, fmt.Errorf("measure_cost: %w", err)
		}
		r.measuring, r.closers = true, append(r.closers, statistics)
	}
	session, err := trace.New(opts)
	if err != nil {
		return nil, inField(name, err)
	}
	for i := range items {
		items[i].hits = new(atomic.Uint64)
	}
	s := &source{name: name, session: session, items: items, receiver: r}
	r.sources = append(r.sources, s)
	return s, nil
}

// openEvents makes a session whose events become batches.
func (r *usdtReceiver) openEvents(b batch, opts *trace.SessionOptions, of item) (*source, error) {
	s, err := r.open(of.name, opts, of)
	if err == nil {
		b.clear()
		r.begin = append(r.begin, func(ctx context.Context) { s.deliver(ctx, b) })
	}
	return s, err
}

// firstPass is the interval at which warn asks whether the first scan is over.
const firstPass = time.Second

// warn logs what the watch does not see: if the kernel does not report what
// starts, and if processes cannot be scanned, as after a loss of privileges.
func (r *usdtReceiver) warn(ctx context.Context) {
	ticker := time.NewTicker(firstPass)
	defer ticker.Stop()
	denied := 0
	for first := true; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		stats := r.watch.Stats()
		if stats.Passes == 0 {
			continue
		}
		if first {
			first = false
			ticker.Reset(r.config.ScanInterval)
			r.warnUnmatched()
			if len(r.config.Spans) > 0 || slices.ContainsFunc(r.config.Metrics,
				func(m MetricConfig) bool { return m.Pair != "" }) {
				r.logger.Info("calls that had begun before the receiver are not measured")
			}
			if stats.EventsError != nil {
				r.logger.Warn("what starts is found by scans of all processes only: "+
					"scan_interval says how late", zap.Error(stats.EventsError),
					zap.Duration("scan_interval", r.config.ScanInterval))
			}
		}
		for _, s := range r.sources {
			losses, err := s.session.Losses()
			if err == nil && losses.Mismatch != "" && !s.mismatched {
				s.mismatched = true
				r.logger.Warn("times of calls may be wrong or missing: "+losses.Mismatch,
					zap.String("source", s.name), zap.String("match_by", losses.Match))
			}
			if err == nil && losses.NoTables != "" && !s.unframed {
				s.unframed = true
				r.logger.Warn("files without unwinding tables: a call that is left by an exception "+
					"can get the end of the one around it", zap.String("source", s.name),
					zap.String("files", losses.NoTables))
			}
		}
		switch {
		case stats.Denied > 0 && denied == 0:
			err := fmt.Errorf("there are %d processes that may not be scanned for lack of "+
				"privileges: their probes are not watched", stats.Denied)
			r.logger.Warn(err.Error(), zap.Int("processes", stats.Denied))
			componentstatus.ReportStatus(r.host, componentstatus.NewRecoverableErrorEvent(err))
		case stats.Denied == 0 && denied > 0:
			r.logger.Info("all processes may be scanned again")
			componentstatus.ReportStatus(r.host, componentstatus.NewEvent(componentstatus.StatusOK))
		}
		denied = stats.Denied
	}
}

// warnUnmatched logs once, after the first scan, which items have no probe in
// any process so far: a wrong name looks like a service that is idle.
func (r *usdtReceiver) warnUnmatched() {
	known := func(yield func(elfnote.Site, error) bool) {
		for p := range defs.Builtin().Probes() {
			if !yield(elfnote.Site{Provider: p.Provider, Name: p.Name}, nil) {
				return
			}
		}
	}
	var noCalls *defs.Definitions // which patterns of the configuration do not name
	for _, s := range r.sources {
		for _, i := range s.items {
			if s.itemSites(i) > 0 {
				continue
			}
			r.logger.Warn("no process has a probe of this so far: "+
				"check its name, or start what has it",
				zap.String("item", i.name), zap.Stringers("probes", i.patterns),
				zap.Strings("known_names_like_it", noCalls.NearestProbes(known, i.patterns...)))
		}
	}
}

// warnMissing logs the arguments that an item reads and that no site of the
// attachment has.
func (r *usdtReceiver) warnMissing(s *source, a *trace.Attachment) {
	for _, i := range s.items {
		for _, t := range i.terms {
			hasIt := func(site *trace.Site) bool { return t.index(site, len(site.Args)) >= 0 }
			if (t.source == argumentTerm || t.source == textTerm) &&
				!slices.ContainsFunc(a.Sites(), hasIt) {
				r.logger.Warn("no site has such an argument: an attribute of it is never set "+
					"(a string of the configuration stands in quotes, as in \"'x'\")",
					zap.String("item", i.name), zap.String("argument", t.arg),
					zap.String("file", a.Path()))
			}
		}
	}
}

func (r *usdtReceiver) changed(c *watch.Changes[*trace.Attachment]) {
	for _, a := range c.Attached {
		s := r.sourceOf(a)
		log := r.logger.With(zap.String("source", s.name), zap.String("file", a.Path()))
		skipped, count := a.Skipped()
		log.Info("attached", zap.Int("sites", len(a.Sites())), zap.Int("skipped", count))
		for _, site := range skipped {
			log.Warn("a site is not watched", zap.Error(site))
		}
		r.warnMissing(s, a)
	}
	for _, a := range c.Detached {
		r.logger.Info("detached", zap.String("source", r.sourceOf(a).name),
			zap.String("file", a.Path()))
	}
	for _, err := range c.Errors {
		var scan *procfs.Error
		if errors.As(err, &scan) {
			r.logger.Debug("not scanned", zap.Error(err))
			continue
		}
		r.logger.Warn("not attached", zap.Error(err)) // it begins with the source
	}
}

// sourceOf returns the source of an attachment.
func (r *usdtReceiver) sourceOf(a *trace.Attachment) *source {
	for _, s := range r.sources {
		if s.session == a.Session() {
			return s
		}
	}
	return &source{}
}

// shutdown sends what has come so far, and stops sending. Everything stays
// attached until close, so that nothing is missed if run is called again.
func (r *usdtReceiver) shutdown(ctx context.Context) error {
	if r.watch == nil {
		return r.close() // it was never started
	}
	r.pause()
	delivered := make(chan struct{})
	go func() {
		r.delivering.Wait()
		close(delivered)
	}()
	select {
	case <-delivered:
	case <-ctx.Done(): // events that are still refused are dropped, and counted
	case <-time.After(lastWait):
	}
	r.stop()
	ctx, cancel := context.WithTimeout(ctx, lastWait) // for consumers that block
	defer cancel()
	defer context.AfterFunc(ctx, r.abandon)()
	r.running.Wait()
	r.delivering.Wait()
	var errs []error
	for _, c := range r.collectors {
		errs = append(errs, c.collect(ctx))
	}
	r.endTelemetry()
	return errors.Join(errs...)
}

func (r *usdtReceiver) endTelemetry() {
	if r.telemetry != nil {
		r.telemetry.Shutdown() // waits for an observation that goes on
		r.telemetry = nil
	}
}

// resume goes on after shutdown, for the consumers of another receiver.
func (r *usdtReceiver) resume(other *usdtReceiver, host component.Host) error {
	r.settings, r.logger, r.host = other.settings, other.logger, host
	r.next = other.next
	return r.run()
}

// isLike reports whether another receiver would do the same.
func (r *usdtReceiver) isLike(other *usdtReceiver) bool {
	return reflect.DeepEqual(r.config, other.config) && r.next.kinds() == other.next.kinds()
}

// close detaches everything and gives back what the receiver holds. A second
// call does nothing.
func (r *usdtReceiver) close() error {
	r.pause()
	r.stop()
	r.abandon()
	r.endTelemetry()
	// All at once: each waits for the kernel.
	errs := make([]error, len(r.sources))
	var closing sync.WaitGroup
	for i, s := range r.sources {
		closing.Go(func() { errs[i] = s.session.Close() })
	}
	closing.Wait()
	r.running.Wait()
	r.delivering.Wait()
	for _, c := range r.closers {
		errs = append(errs, c.Close())
	}
	r.sources, r.closers = nil, nil
	return errors.Join(errs...)
}
