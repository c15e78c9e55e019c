// SPDX-License-Identifier: BSD-2-Clause

// Package c has functions in C.
package c

// #include <sys/sdt.h>
// static void empty(void) { __asm__ volatile(""); }
// static void fire(long i) { DTRACE_PROBE2(bench, fire__c, "/", i); }
import "C"

// Empty calls a function that does nothing.
func Empty() { C.empty() }

// Fire calls a function with a probe.
func Fire(i int) { C.fire(C.long(i)) }
