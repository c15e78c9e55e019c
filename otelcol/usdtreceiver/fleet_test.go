// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt/proc"
)

// nodeMetrics are those of a node for a minute, with two counters and the times
// of four operations for each container.
func nodeMetrics(t *testing.T, containers int) pmetric.Metrics {
	random := rand.NewChaCha8([32]byte{1})
	text := func(digits int) string {
		b := make([]byte, digits/2)
		random.Read(b)
		return hex.EncodeToString(b)
	}
	uuid := func() string {
		return text(8) + "-" + text(4) + "-" + text(4) + "-" + text(4) + "-" + text(12)
	}
	var metrics []*metric
	for _, c := range []MetricConfig{
		{
			Name:        "postgresql.query.duration",
			Description: "Time from a query's arrival to its end.",
			Pair:        "postgresql:query",
			Attributes:  map[string]string{"db.operation.name": "str(query, 6)"},
		},
		{Name: "postgresql.transactions", Description: "Transactions that were committed.",
			Count: "postgresql:transaction__commit"},
		{Name: "python.gc.collections", Description: "Collections of Python's garbage collector.",
			Count: "python:gc__done"},
	} {
		m, err := c.parse(ByContainer, defaultCardinalityLimit)
		qt.Assert(t, qt.IsNil(err))
		metrics = append(metrics, m)
	}
	at := time.Unix(1_800_000_000, 123456789)
	b := builderOf(Delta)
	for range containers {
		id, uid := text(64), uuid()
		r := &resource{
			path:      "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uid + ".slice/cri-containerd-" + id + ".scope",
			container: proc.Container{ID: id, Runtime: "containerd", PodUID: uid},
			instance:  uuid(),
		}
		for _, m := range metrics[1:] {
			b.add(m, []*series{{resource: r, attributes: pcommon.NewMap(), start: at,
				count: random.Uint64() % 100_000}}, at, false)
		}
		for _, operation := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
			s := &series{resource: r, attributes: pcommon.NewMap(), start: at}
			s.attributes.PutStr(metrics[0].attributes[0].name, operation)
			s.buckets = tracing.Exponential{Positive: tracing.Buckets{Offset: 130}}
			for i := range 50 { // values from 78 us to 6 ms
				n := 1000 * math.Exp(-math.Pow(float64(i-20)/8,
					2)/2) * (0.8 + 0.4*float64(random.Uint64())/math.MaxUint64)
				s.buckets.Positive.Counts = append(s.buckets.Positive.Counts, uint64(n))
				s.count += uint64(n)
			}
			s.sum.add(trace.ValueOf(random.Uint64() >> 20))
			s.min, s.max = 1e5*float64(random.Uint64())/math.MaxUint64,
				1e9*float64(random.Uint64())/math.MaxUint64
			b.add(metrics[0], []*series{s}, at, false)
		}
		attributes := b.all.ResourceMetrics().At(b.all.ResourceMetrics().Len() - 1).Resource().Attributes()
		for key, value := range map[string]string{
			"service.name": "orders", "k8s.namespace.name": "shop",
			"k8s.pod.name":        "orders-7d9c5b6f4-" + text(6),
			"k8s.deployment.name": "orders", "k8s.container.name": "server",
			"k8s.node.name": "node-0123.example",
		} {
			attributes.PutStr(key, value)
		}
	}
	return b.all
}

// What a container takes in a message is what docs/fleet.md counts with.
func TestSizesOfFleet(t *testing.T) {
	const containers = 100
	message, err := new(pmetric.ProtoMarshaler).MarshalMetrics(nodeMetrics(t, containers))
	qt.Assert(t, qt.IsNil(err))
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	_, err = w.Write(message)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(w.Close()))

	page, err := os.ReadFile("../../docs/fleet.md")
	qt.Assert(t, qt.IsNil(err))
	for _, test := range []struct {
		text     string
		told, is int
	}{
		{"**2,000 bytes**", 2000, len(message) / containers},
		{"**600 bytes** compressed", 600, compressed.Len() / containers},
	} {
		qt.Check(t, qt.StringContains(string(page), test.text))
		qt.Check(t, qt.IsTrue(10*test.is > 9*test.told && 10*test.is < 11*test.told),
			qt.Commentf("%d is not about %d", test.is, test.told))
	}
}
