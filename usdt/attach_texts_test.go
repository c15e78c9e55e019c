// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

func TestArgumentsThatAreStrings(t *testing.T) {
	testprog.RequireBPF(t)
	texts := newTexts(t)
	process := testprog.Start(t, "target-pie")
	texts.attach(t, usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}, provider,
		"strings")
	process.Fire("strings", 1)
	probe := testprog.ExpectedProbe(machineOf(t, "target-pie"), "strings")
	qt.Assert(t, qt.Equals(texts.next(t).text, probe.Hits[0][0].Text))
}

// texts collects events of the program text3.
type texts struct {
	*usdt.Manager
	textObjects
	reader *ringbuf.Reader
}

type textObjects struct {
	Text3 *ebpf.Program `ebpf:"text3"`
	Texts *ebpf.Map     `ebpf:"texts"`
}

type textEvent struct {
	pid           int
	text          string
	second, third int64
}

func newTexts(t *testing.T) *texts {
	t.Helper()
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	spec, err := testbpf.LoadArgs()
	qt.Assert(t, qt.IsNil(err))
	x := &texts{}
	x.Manager, err = usdt.NewManager(spec, nil)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { x.Manager.Close() })
	load(t, spec, &x.textObjects, x.CollectionOptions())
	t.Cleanup(func() {
		x.Text3.Close()
		x.Texts.Close()
		x.textObjects = textObjects{}
	})
	x.reader, err = ringbuf.NewReader(x.Texts)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { x.reader.Close() })
	return x
}

func (x *texts) attach(t *testing.T, target usdt.Target, provider, name string) *usdt.Link {
	t.Helper()
	lnk, err := x.Manager.Attach(x.Text3, target, nil, elfnote.Exact(provider, name))
	qt.Assert(t, qt.IsNil(err))
	return lnk
}

func (x *texts) next(t *testing.T) textEvent {
	t.Helper()
	x.reader.SetDeadline(time.Now().Add(testneeds.Patience(10 * time.Second)))
	record, err := x.reader.Read()
	qt.Assert(t, qt.IsNil(err))
	var raw testbpf.ArgsText
	qt.Assert(t,
		qt.IsNil(binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian, &raw)))
	qt.Assert(t, qt.IsTrue(raw.Length >= 0),
		qt.Commentf("reading the string: error %d", raw.Length))
	text := make([]byte, 0, len(raw.String))
	for _, c := range raw.String[:max(raw.Length-1, 0)] {
		text = append(text, byte(c))
	}
	return textEvent{int(raw.Pid), string(text), raw.Second, raw.Third}
}
