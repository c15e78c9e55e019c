// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf/rlimit"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receiverhelper"
	otelmetric "go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/gousdt/gousdt/container"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
)

// usdtReceiver is the receiver. Consumers are set before it starts: nil if
// there is no pipeline for that kind of data.
type usdtReceiver struct {
	config       *Config
	settings     receiver.Settings
	logger       *zap.Logger
	nextMetrics  consumer.Metrics
	nextTraces   consumer.Traces
	nextLogs     consumer.Logs
	nextProfiles xconsumer.Profiles

	host      component.Host
	report    *receiverhelper.ObsReport
	cgroups   *container.Cgroups // nil if there is no hierarchy of version 2
	cache     *proc.Cache        // of all watches
	processes *processes
	sources   []*source
	metrics   *metricsSource  // nil if there are no metrics
	profiles  *profilesSource // nil if there are no profiles
	observing otelmetric.Registration

	stop       context.CancelFunc
	running    sync.WaitGroup // what ends with stop
	delivering sync.WaitGroup // what ends when all events have been sent
}

func newReceiver(settings receiver.Settings, config *Config) *usdtReceiver {
	return &usdtReceiver{config: config, settings: settings, logger: settings.Logger, stop: func() {}}
}

// lastWait is how long what is refused at the end is tried to be sent.
const lastWait = 5 * time.Second

// source is a session, and what feeds it.
type source struct {
	name     string // for logs and the receiver's own metrics
	session  *trace.Session
	watch    *trace.Watch
	receiver *usdtReceiver
	refused  atomic.Uint64 // events that the pipeline has refused for good
	limited  atomic.Uint64 // events that were over the limit of all processors

	costs costs
}

func (r *usdtReceiver) start(_ context.Context, host component.Host) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	r.host = host
	if r.report, err = receiverhelper.NewObsReport(receiverhelper.ObsReportSettings{
		ReceiverID: r.settings.ID, Transport: "usdt", ReceiverCreateSettings: r.settings,
	}); err != nil {
		return err
	}
	// Needed before Linux 5.11. Who may not do that may not trace either, and
	// the session says so better.
	if err := rlimit.RemoveMemlock(); err != nil && !errors.Is(err, os.ErrPermission) {
		return err
	}
	if r.cgroups, err = container.Watch(""); err != nil {
		r.logger.Warn("containers are known by their processes only", zap.Error(err))
		r.cgroups = nil
	}
	r.cache = proc.NewCache(nil)
	r.processes = newProcesses(r.config.Resource, proc.NewFS(""), r.cgroups)

	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	if r.nextMetrics != nil {
		if err := r.startMetrics(ctx); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	if r.nextTraces != nil {
		if err := r.startSpans(ctx); err != nil {
			return err
		}
	}
	if r.nextLogs != nil {
		if err := r.startLogs(ctx); err != nil {
			return err
		}
	}
	if r.nextProfiles != nil {
		if err := r.startProfiles(ctx); err != nil {
			return err
		}
	}
	return r.observe()
}

// open makes a session and watches the probes for it wherever they are.
func (r *usdtReceiver) open(ctx context.Context, name string, opts *trace.SessionOptions, patterns []elfnote.Pattern) (*source, error) {
	opts.Containers, opts.Statistics = r.cgroups, r.config.MeasureCost
	session, err := trace.New(opts)
	if err != nil {
		return nil, err
	}
	s := &source{name: name, session: session, receiver: r}
	r.sources = append(r.sources, s)
	if s.watch, err = session.Watch(&trace.WatchOptions{
		Proc:    proc.WatcherOptions{Cache: r.cache, Handler: r.processes.changed},
		Changed: s.changed,
	}, patterns...); err != nil {
		return nil, err
	}
	r.running.Go(func() {
		if err := s.watch.Run(ctx, r.config.ScanInterval); err != nil {
			componentstatus.ReportStatus(r.host, componentstatus.NewPermanentErrorEvent(fmt.Errorf("%s: scanning processes: %w", name, err)))
		}
	})
	if len(r.sources) == 1 { // the same holds for all
		r.running.Go(func() { s.warnOfPolling(ctx) })
	}
	return s, nil
}

// firstPass is how often it is asked whether the first scan is over.
const firstPass = time.Second

// warnOfPolling says if the kernel does not report what starts.
func (s *source) warnOfPolling(ctx context.Context) {
	ticker := time.NewTicker(firstPass)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		stats := s.watch.Stats()
		if stats.Passes == 0 {
			continue
		}
		if stats.EventsError != nil {
			s.receiver.logger.Warn("what starts is found by scans of all processes only: scan_interval says how late",
				zap.Duration("scan_interval", s.receiver.config.ScanInterval), zap.Error(stats.EventsError))
		}
		return
	}
}

// changed logs what a watch has changed.
func (s *source) changed(c *trace.WatchChanges) {
	log := s.receiver.logger.With(zap.String("source", s.name))
	for _, a := range c.Attached {
		skipped, count := a.Skipped()
		log.Info("attached", zap.String("file", a.Path()), zap.Int("sites", len(a.Sites())), zap.Int("skipped", count))
		for _, site := range skipped {
			log.Warn("a site is not watched", zap.String("file", a.Path()), zap.Error(site))
		}
	}
	for _, a := range c.Detached {
		log.Info("detached", zap.String("file", a.Path()))
	}
	for _, err := range c.Errors {
		var scan *proc.Error
		if errors.As(err, &scan) {
			log.Debug("not scanned", zap.Error(err))
			continue
		}
		log.Warn("not attached", zap.Error(err))
	}
}

// shutdown detaches everything, sends what is left and closes the sessions.
func (r *usdtReceiver) shutdown(ctx context.Context) error {
	if r.host == nil {
		return nil // it was never started
	}
	var err error
	for _, s := range r.sources {
		err = errors.Join(err, s.session.Detach())
	}
	delivered := make(chan struct{})
	go func() {
		r.delivering.Wait()
		close(delivered)
	}()
	select {
	case <-delivered:
	case <-ctx.Done(): // what is refused still is dropped, and counted
	case <-time.After(lastWait):
	}
	r.stop()
	r.running.Wait()
	if r.metrics != nil {
		err = errors.Join(err, r.metrics.collect(ctx))
	}
	if r.profiles != nil {
		err = errors.Join(err, r.profiles.collect(ctx))
	}
	return errors.Join(err, r.close())
}

// close gives back what the receiver holds.
func (r *usdtReceiver) close() error {
	r.stop()
	var err error
	if r.observing != nil {
		err = r.observing.Unregister() // waits for an observation that goes on
		r.observing = nil
	}
	for _, s := range r.sources {
		err = errors.Join(err, s.session.Close())
	}
	r.running.Wait()
	r.delivering.Wait()
	r.sources = nil
	if r.processes != nil && r.processes.symbolizer != nil {
		err = errors.Join(err, r.processes.symbolizer.Close())
		r.processes.symbolizer = nil
	}
	if r.cgroups != nil {
		err = errors.Join(err, r.cgroups.Close())
		r.cgroups = nil
	}
	return err
}
