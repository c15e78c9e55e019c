// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"testing"
	"time"

	"github.com/gousdt/gousdt/internal/testprog"
)

// No program dies because the receiver has it attached while it is deployed,
// and from the first hit on all become records.
func TestDeployments(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	d := testprog.NewDeployments(t, 2)
	d.Pause = testprog.Soak(50*time.Millisecond, d.Pause)
	s, end := started(t, map[string]any{"logs": []any{map[string]any{
		"event": testprog.DeployedProbe, "attributes": map[string]any{"n": "arg0", "run": "arg1"}}}})
	hits := &testprog.Hits{}
	d.Counted = hits.Counted
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for seen := 0; ; time.Sleep(time.Millisecond) { // nothing tells what is sent
			sent := s.logs.AllLogs()
			for _, logs := range sent[seen:] {
				for _, resource := range logs.ResourceLogs().All() {
					for _, record := range resource.ScopeLogs().At(0).LogRecords().All() {
						n, _ := record.Attributes().Get("n")
						run, _ := record.Attributes().Get("run")
						hits.Add(int(run.Int()), int(n.Int()))
					}
				}
			}
			seen = len(sent)
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	d.Run(t, "receiver", testprog.Soak(8, 1000), 0)
	close(over)
	<-done
	end()
}
