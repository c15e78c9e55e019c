// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
)

const (
	javaProbe    = "usdt:FILE:hotspot:"
	monitorsFlag = "-XX:+DTraceMonitorProbes"
	methodsFlag  = "-XX:+DTraceMethodProbes"
	monitorsOnly = "nothing attached, " + monitorsFlag
	methodsOnly  = "nothing attached, " + methodsFlag
)

// Collections are so rare that their hits are nothing of a request.
var javaQuestions = []question{
	{name: untraced},
	{name: "usdttrace --latency, collections",
		command: []string{"usdttrace", "--latency", "hotspot:gc__begin..hotspot:gc__end", "FILE"},
		peer:    "bpftrace, collections"},
	{name: "bpftrace, collections", command: []string{"bpftrace", "-e", javaProbe +
		"gc__begin { @s = nsecs; } " + javaProbe + "gc__end /@s/ { @t = hist(nsecs - @s); @s = 0; }"}},
	{name: "-Xlog:gc*,safepoint", options: []string{"-Xlog:gc*,safepoint:file=/dev/null"}},
	{name: "usdttrace --count --by stack, collections",
		command: []string{"usdttrace", "--count", "--by", "stack", "FILE", "hotspot:gc__begin"}},
	{name: monitorsOnly, options: []string{monitorsFlag}},
	{name: "usdttrace --latency, waits for monitors by class",
		command: []string{"usdttrace", "--latency", "hotspot:monitor__contended", "--by", "str(start.class)", "FILE"},
		options: []string{monitorsFlag}, hits: -1, alone: monitorsOnly, peer: "bpftrace, waits for monitors by class"},
	{name: "bpftrace, waits for monitors by class", options: []string{monitorsFlag},
		command: []string{"bpftrace", "-e", javaProbe +
			"monitor__contended__enter { @s[tid] = nsecs; } " + javaProbe + "monitor__contended__entered /@s[tid]/ " +
			"{ @t[str(arg2, arg3)] = hist(nsecs - @s[tid]); delete(@s[tid]); }"}},
	{name: methodsOnly, options: []string{methodsFlag}},
	{name: "usdttrace --count, methods by name", options: []string{methodsFlag},
		command: []string{"usdttrace", "--count", "--by", "str(class,32),str(method,32)", "FILE", "hotspot:method__entry"},
		hits:    methodsOfRequest, alone: methodsOnly, peer: "bpftrace, methods by name"},
	{name: "bpftrace, methods by name", options: []string{methodsFlag},
		command: []string{"bpftrace", "-e", javaProbe +
			"method__entry { @[str(arg1, arg2), str(arg3, arg4)] = count(); }"}},
}

// methodsOfRequest is how many methods a request of peers/Requests.java calls.
const methodsOfRequest = 60

// java is a program whose requests need memory and a lock.
func (e *env) java() (*application, error) {
	library, err := libjvm()
	if err != nil {
		return nil, err
	}
	if out, err := exec.Command("javac", "-d", e.dir, "peers/Requests.java").CombinedOutput(); err != nil {
		return nil, &unableError{fmt.Sprintf("javac: %v: %s", err, out)}
	}
	requests := e.pick(20_000, 5000, 10)
	return &application{file: library, with: func(options []string) (work, error) {
		arguments := append(slices.Clone(options), "-Xmx64m", "-cp", e.dir, "Requests")
		return func(part float64) (s spent, err error) {
			out, err := exec.Command("java", append(slices.Clone(arguments),
				strconv.Itoa(max(1, int(part*float64(requests)))))...).Output()
			if err == nil {
				_, err = fmt.Sscan(string(out), &s.average, &s.tail)
			}
			return s, err
		}, nil
	}}, nil
}
