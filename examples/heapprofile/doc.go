// SPDX-License-Identifier: BSD-2-Clause

//go:build 386 || amd64 || arm64

// Command heapprofile profiles the memory of running programs that have the
// probes
//
//	otel_memory:alloc(pointer, size)
//	otel_memory:free(pointer)
//
// in their allocator, and writes what pprof reads:
//
//	$ make -C testdata build/amd64/heap
//	$ testdata/build/amd64/heap forever &
//	$ go build ./examples/heapprofile && sudo ./heapprofile -for 10s -o heap.pb.gz $!
//	attached to otel_memory:free in /.../libheap.so of process 3817 (heap)
//	attached to otel_memory:alloc in /.../libheap.so of process 3817 (heap)
//	$ go tool pprof -top -sample_index=alloc_space heap.pb.gz
//	      flat  flat%   sum%        cum   cum%
//	   39.50MB 87.78% 87.78%    39.50MB 87.78%  load_picture
//	    5.50MB 12.22%   100%     5.50MB 12.22%  copy_header
//	         0     0%   100%       45MB   100%  main
//	         0     0%   100%     5.50MB 12.22%  parse_request
//	         0     0%   100%       45MB   100%  serve
//
// Without a PID it profiles every process that maps a file with these probes,
// now or later. It walks stacks by frame pointers, as the kernel does, so that
// programs have to be compiled with -fno-omit-frame-pointer (on s390x
// -mbackchain).
//
// # The parts
//
//	heap.bpf.c  samples allocations and adds them up by stack, in the kernel
//	tracer.go   loads that and attaches it, wherever the probes are, by package usdt
//	profile.go  makes a profile of sums and stacks, by package stack
//
// # In a profiler that exists
//
// A profiler has its own unwinder, its own symbolizer and its own view of the
// processes. What it takes from here is tracer.go: [usdt.NewManager] between
// reading its object and loading it, and [usdt.Manager.Watch], which keeps
// programs attached as processes and libraries come and go.
//
//   - Its BPF program has BPF_USDT in the place of these, and calls its
//     unwinder where this one calls bpf_get_stackid. If it does so by tail
//     calls, usdt.ManagerOptions{Mode: usdt.ModeSingle} loads the programs such
//     that they are allowed.
//   - Where it knows of new processes and mappings already, it calls
//     watch.Sync(pid) for each in the place of watch.Run. Watch.SyncAll now and
//     then makes up for what was missed.
//   - Where its BPF program must tell processes or files apart otherwise than
//     by the PID, usdt.WatchProgram.OptionsFor gives each a cookie.
//   - Which processes are profiled is for usdt.WatchOptions.Filter to say.
//     Without usdt.WatchOptions.PerProcess a file is attached to once for all
//     processes that map it, however many there are: let the program ask
//     whether it cares for the process that it runs in.
package main
