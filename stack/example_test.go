// SPDX-License-Identifier: BSD-2-Clause

package stack_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/google/pprof/profile"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// Find the symbols that the arguments of a stripped program name, in its
// installed debug file.
func ExampleDebugSymbols() {
	sel, err := usdt.Select(usdt.Target{Path: "/usr/bin/python3", Symbols: stack.DebugSymbols("")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sel.Close()
	fmt.Println(sel)
}

// The stacks of events, as the kernel walks them.
func ExampleSymbolizer_Frames() {
	session, err := trace.Open(usdt.Target{Path: "/usr/bin/python3"},
		&trace.SessionOptions{Events: &trace.EventOptions{StackDepth: 127}},
		elfnote.MustParsePattern("python:gc__start"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
	symbolizer := stack.NewSymbolizer("")
	defer symbolizer.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for event, err := range session.Events(ctx) {
		if err != nil {
			fmt.Println(err)
			continue
		}
		for _, frame := range symbolizer.Frames(ctx, event.PID, event.Stack) {
			fmt.Printf("%#x %s+%#x in %s\n", frame.Address, frame.Function,
				frame.Offset, frame.File)
			if frame.Function == "" {
				fmt.Println("a service may have the symbols of build", frame.BuildID)
			}
		}
	}
	counts := symbolizer.Counts()
	fmt.Println(counts.NoFile+counts.NoFunction, "functions have no name,", counts.CutStacks,
		"stacks are not complete")
}

// Stacks of programs without frame pointers, from the registers and a copy of
// the stack.
func ExampleSymbolizer_Unwind() {
	session, err := trace.Open(usdt.Target{Path: "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"},
		&trace.SessionOptions{
			Events: &trace.EventOptions{StackCopy: 16 << 10}}, elfnote.MustParsePattern("libstdcxx:throw"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
	symbolizer := stack.NewSymbolizer("")
	defer symbolizer.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for event, err := range session.Events(ctx) {
		if err != nil {
			fmt.Println(err)
			continue
		}
		addresses := symbolizer.Unwind(ctx, event.PID, event.Registers, event.StackCopy)
		for _, frame := range symbolizer.Frames(ctx, event.PID, addresses) {
			fmt.Println(frame.Function)
		}
	}
}

// A process is remembered when a watch first sees it.
func ExampleSymbolizer_Remember() {
	symbolizer := stack.NewSymbolizer("")
	defer symbolizer.Close()
	session, err := trace.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
	w, err := watch.New(&watch.Options{
		Mapped: func(appeared, _ []*proc.ProcessFile) {
			for _, file := range appeared {
				symbolizer.Remember(file.Process.PID)
			}
		},
	}, nil, session.Part(elfnote.MustParsePattern("postgresql:*")))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Close()
	if err := w.Sync(context.Background(), 0); err != nil {
		fmt.Println(err)
	}
}

// A profile is made of stacks with values, such as the counts of a BPF map.
func ExampleProfile() {
	symbolizer := stack.NewSymbolizer("")
	defer symbolizer.Close()
	p := stack.NewProfile(symbolizer, profile.ValueType{Type: "hits", Unit: "count"})
	p.Start = time.Now()
	for range 10 {
		// In place of those that were sampled.
		pid, addresses := os.Getpid(), []uint64{0x401000, 0x402000}
		p.Add(context.Background(), pid, addresses, []int64{1}, nil)
	}
	p.Duration = time.Since(p.Start)
	file, err := os.CreateTemp("", "hits.pb.gz")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if err := p.Write(context.Background(), file); err != nil {
		fmt.Println(err)
	}
	// go tool pprof hits.pb.gz

	// Output:
}

// Functions that something else has named, such as an interpreter.
func ExampleProfile_AddFrames() {
	p := stack.NewProfile(nil, profile.ValueType{Type: "hits", Unit: "count"})
	frames := []stack.Frame{{Function: "collect"}, {Function: "main"}, {File: "/usr/bin/python3"}}
	p.AddFrames(1, frames, []int64{2}, nil)
	p.AddFrames(7, frames, []int64{1}, nil)
	if err := p.WriteFolded(context.Background(), os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output: [python3];main;collect 3
}
