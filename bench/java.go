// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

const (
	javaProbe    = "usdt:FILE:hotspot:"
	monitorsFlag = "-XX:+DTraceMonitorProbes"
	methodsFlag  = "-XX:+DTraceMethodProbes"
	monitorsOnly = "nothing attached, " + monitorsFlag
	methodsOnly  = "nothing attached, " + methodsFlag
	monitorsPeer = "bpftrace, waits for monitors by class"
	methodsPeer  = "bpftrace, methods by name"
)

// Collections are so rare that their hits are nothing of a request.
var javaQuestions = []question{
	{name: untraced},
	{name: "usdttrace --latency, collections",
		command: []string{"usdttrace", "--latency", "hotspot:gc__begin..hotspot:gc__end", "FILE"},
		peer:    "bpftrace, collections"},
	{name: "bpftrace, collections", command: []string{"bpftrace", "-e", javaProbe +
		"gc__begin { @s = nsecs; } " + javaProbe + "gc__end /@s/ { @t = hist(nsecs - @s); @s = 0; }"}},
	{name: "-Xlog:gc*,safepoint", options: []string{"-Xlog:gc*,safepoint:file=DIR/gc.log"}},
	{name: "usdttrace --count --by stack, collections",
		command: []string{"usdttrace", "--count", "--by", "stack", "FILE", "hotspot:gc__begin"}},
	{name: monitorsOnly, options: []string{monitorsFlag}},
	{name: "usdttrace --latency, waits for monitors by class",
		options: []string{monitorsFlag}, hits: -1, alone: monitorsOnly, peer: monitorsPeer,
		command: []string{"usdttrace", "--latency", "hotspot:monitor__contended",
			"--by", "str(start.class)", "FILE"}},
	{name: monitorsPeer, options: []string{monitorsFlag},
		command: []string{"bpftrace", "-e", javaProbe +
			"monitor__contended__enter { @s[tid] = nsecs; } " + javaProbe +
			"monitor__contended__entered /@s[tid]/ { @t[str(arg2, arg3)] = hist(nsecs - @s[tid]); delete(@s[tid]); }"}},
}

var methodQuestions = []question{
	{name: untraced},
	{name: methodsOnly, options: []string{methodsFlag}},
	{name: "usdttrace --count, methods by name", options: []string{methodsFlag},
		hits: methodsOfRequest, alone: methodsOnly, peer: methodsPeer,
		command: []string{"usdttrace", "--count", "--by", "str(class,32),str(method,32)",
			"FILE", "hotspot:method__entry"}},
	{name: methodsPeer, options: []string{methodsFlag},
		command: []string{"bpftrace", "-e", javaProbe +
			"method__entry { @[str(arg1, arg2), str(arg3, arg4)] = count(); }"}},
}

// methodsOfRequest is how many methods a request of peers/Requests.java calls.
const methodsOfRequest = 96

// java is a program whose requests need memory and a lock.
func (e *env) java(requests int) (*application, error) {
	library, err := libjvm()
	if err != nil {
		return nil, err
	}
	if out, err := exec.Command("javac", "-d", e.dir, "peers/Requests.java").CombinedOutput(); err != nil {
		return nil, &unableError{fmt.Sprintf("javac: %v: %s", err, out)}
	}
	requests = e.pick(requests, requests/5, 10)
	return &application{file: library, with: func(options []string) (work, error) {
		arguments := []string{"-Xmx64m", "-cp", e.dir}
		for _, option := range options {
			arguments = append(arguments, strings.ReplaceAll(option, "DIR", e.dir))
		}
		return func(part float64) (s spent, err error) {
			out, err := exec.Command("java", append(slices.Clip(arguments), "Requests",
				strconv.Itoa(max(1, int(part*float64(requests)))))...).Output()
			if err == nil {
				_, err = fmt.Sscan(string(out), &s.average, &s.tail)
			}
			return s, err
		}, nil
	}}, nil
}
