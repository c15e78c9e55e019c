// SPDX-License-Identifier: BSD-2-Clause

package profiler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/reporter"
	"go.opentelemetry.io/ebpf-profiler/reporter/samples"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
)

const (
	// sendInterval is how often stacks are sent.
	sendInterval = 2 * time.Second
	// sendTimeout bounds the time of one request.
	sendTimeout = 5 * time.Second
)

// sender sends stacks to a Collector. The profiler's own reporter makes the
// profiles. The sender adds what that reporter does not do: it waits for the
// last profiles, and reports which were not sent.
type sender struct {
	*reporter.CollectorReporter
	address string
	conn    *grpc.ClientConn
	client  pprofileotlp.GRPCClient

	mu      sync.Mutex
	waiting int   // stacks that were not sent yet
	lost    int   // stacks that the Collector did not take
	err     error // why it did not take the last of them
}

func sendTo(ctx context.Context, address string) (*sender, error) {
	conn, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("sending to %s: %w", address, err)
	}
	s := &sender{address: address, conn: conn, client: pprofileotlp.NewGRPCClient(conn)}
	asking, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	// An empty request shows whether the Collector accepts profiles.
	_, err = s.client.Export(asking, pprofileotlp.NewExportRequest())
	if err == nil {
		s.CollectorReporter, err = reporter.NewCollector(&reporter.Config{Name: "usdtprofile",
			ReportInterval: sendInterval, SamplesPerSecond: 1}, s)
	}
	if err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("sending to %s: %w", address, err)
	}
	return s, nil
}

func (s *sender) report(t *libpf.Trace, meta *samples.TraceEventMeta) error {
	s.mu.Lock()
	s.waiting++
	s.mu.Unlock()
	return s.ReportTraceEvent(t, meta)
}

// Capabilities reports that the sender does not change profiles.
func (s *sender) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

// ConsumeProfiles sends profiles. The reporter calls it.
func (s *sender) ConsumeProfiles(ctx context.Context, profiles pprofile.Profiles) error {
	count := stacksOf(profiles) // before the request moves them out of profiles
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	answer, err := s.client.Export(ctx, pprofileotlp.NewExportRequestFromProfiles(profiles),
		grpc.UseCompressor(gzip.Name))
	if err == nil && answer.PartialSuccess().RejectedProfiles() > 0 {
		err = errors.New(answer.PartialSuccess().ErrorMessage())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting -= count; err != nil {
		s.lost += count
		s.err = err
	}
	return nil
}

// stacksOf returns how many stacks are in profiles: each stack has a timestamp.
func stacksOf(profiles pprofile.Profiles) (n int) {
	for _, resource := range profiles.ResourceProfiles().All() {
		for _, scope := range resource.ScopeProfiles().All() {
			for _, profile := range scope.Profiles().All() {
				for _, sample := range profile.Samples().All() {
					n += sample.TimestampsUnixNano().Len()
				}
			}
		}
	}
	return n
}

// finish waits until all stacks have been sent.
func (s *sender) finish() error {
	const often = 10 * time.Millisecond
	s.mu.Lock()
	defer s.mu.Unlock()
	for began := time.Now(); s.waiting > 0 && time.Since(began) < sendInterval+2*sendTimeout; {
		s.mu.Unlock()
		time.Sleep(often)
		s.mu.Lock()
	}
	if s.lost+s.waiting > 0 {
		return fmt.Errorf("%d stacks were not sent to %s: %w", s.lost+s.waiting, s.address,
			cmp.Or(s.err, context.DeadlineExceeded))
	}
	return nil
}

func (s *sender) close() error {
	s.Stop()
	return s.conn.Close()
}
