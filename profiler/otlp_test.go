// SPDX-License-Identifier: BSD-2-Clause

package profiler

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"google.golang.org/grpc"

	"github.com/gousdt/gousdt/elfnote"
)

// receiver is a Collector's receiver. It keeps the functions of stacks, the
// innermost first, with how often they came.
type receiver struct {
	pprofileotlp.UnimplementedGRPCServer
	mu     sync.Mutex
	stacks map[string]int
}

func receive(t *testing.T, service func(*grpc.Server)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	qt.Assert(t, qt.IsNil(err))
	server := grpc.NewServer()
	service(server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return listener.Addr().String()
}

func (r *receiver) Export(
	_ context.Context, request pprofileotlp.ExportRequest,
) (pprofileotlp.ExportResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := request.Profiles()
	names := all.Dictionary()
	for _, resource := range all.ResourceProfiles().All() {
		for _, scope := range resource.ScopeProfiles().All() {
			for _, profile := range scope.Profiles().All() {
				for _, sample := range profile.Samples().All() {
					r.stacks[functions(names, sample)] += sample.TimestampsUnixNano().Len()
				}
			}
		}
	}
	return pprofileotlp.NewExportResponse(), nil
}

func functions(names pprofile.ProfilesDictionary, sample pprofile.Sample) string {
	var functions []string
	for _, at := range names.StackTable().At(int(sample.StackIndex())).LocationIndices().All() {
		for _, line := range names.LocationTable().At(int(at)).Lines().All() {
			function := names.FunctionTable().At(int(line.FunctionIndex()))
			functions = append(functions,
				names.StringTable().At(int(function.NameStrindex())))
		}
	}
	return strings.Join(functions, " < ")
}

// TestOTLP states that a Collector gets each stack, the last ones too.
func TestOTLP(t *testing.T) {
	r := &receiver{stacks: make(map[string]int)}
	address := receive(t, func(s *grpc.Server) { pprofileotlp.RegisterGRPCServer(s, r) })
	p := run(t, python(t)...)
	c := startWith(t, address, &Options{Watch: only(p.Process.Pid)},
		elfnote.MustParsePattern(pythonProbe))
	c.warm(t, p, p.Process.Pid, "main_loop")
	p.hit(t, 250)
	stats := c.finish(t)

	r.mu.Lock()
	defer r.mu.Unlock()
	sent, named := 0, 0
	for stack, n := range r.stacks {
		if sent += n; strings.Contains(stack, pythonWant) {
			named += n
		}
	}
	qt.Check(t, qt.Equals(sent, int(stats.Matched)))
	qt.Check(t, qt.IsTrue(named >= 1000), qt.Commentf("%d of %d", named, sent))
}

// TestOTLPRefused states that it is said at once that a Collector does not
// answer, or has no profiles.
func TestOTLPRefused(t *testing.T) {
	none := receive(t, func(*grpc.Server) {})
	for address, want := range map[string]string{
		"127.0.0.1:1": `sending to 127.0.0.1:1: .*connection refused.*`,
		none:          `sending to .*unknown service .*ProfilesService`,
	} {
		_, err := Start(t.Context(), USDT(nil), &StartOptions{OTLP: address})
		qt.Check(t, qt.ErrorMatches(err, want))
	}
}
