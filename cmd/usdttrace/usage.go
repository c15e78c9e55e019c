// SPDX-License-Identifier: BSD-2-Clause

package main

const usage = `Usage: usdttrace [FLAGS] [-p PID | -a | -c COMMAND] [FILE|LIBRARY...] PATTERN...

Watches USDT probes fire: prints a line for each hit, or what the hits come to.

What is watched
  PATTERN               PROVIDER:NAME with * ? [a-z] [!a-z] and \ to quote
  FILE, LIBRARY         these files, in every process that maps them, or in the
                        one of -p; a bare name is found as the dynamic linker
                        would, or along PATH
  -p, --pid PID         all files that a process maps, also later ones; processes
                        that it forks are others (name the FILE for all of them)
  -a, --all             all files that any process maps, also later ones
  -c, --command COMMAND run a command and watch it from its first instruction,
                        with the libraries that it is linked with; what it loads
                        later, and its descendants, 20 ms after they appear (those
                        that live shorter are missed). With FILE, only that, also
                        from the first instruction. It ends with the command.
                        COMMAND is split at blanks, ' and " quote
      --where EXPR      only hits for which it holds, decided in the kernel:
                        arg2 > 4096 && arg0 == "postgres", pid, tid, comm, cpu
  -l, --list            only list the probes that would be watched, with the types
                        of their arguments; needs no privileges but to read files
PIDs are those of the own PID namespace; in another one than the initial, processes
of other namespaces have 0.

Events
      --str N[:MAX]     argument N is a pointer to text: show up to MAX (128) bytes
      --bytes N:LENGTH  argument N is a pointer to LENGTH bytes
      --str N:argM, --bytes N:argM  argument M says how many bytes there are: show up
                        to 256
      --stack           the user stack of each hit, with names of functions
      --unwind HOW      dwarf (default), dwarf:SIZE: find the callers from a copy of
                        SIZE (16k, up to 64k) bytes of the stack, also of code
                        without frame pointers; fp: by frame pointers, in the
                        kernel, which costs less. Also for --pprof
      --max-events N    stop after N events
      --buffer SIZE     of the ring buffer in bytes, with k, M or G (8M)

What the hits come to, computed in the kernel
      --count           how many
      --sum TERM        count, sum, average, least and greatest of arg0, arg1 & 7...
      --hist TERM       the distribution, by powers of two
      --linear LOW:HIGH:STEP  the distribution by steps, with --hist and --latency
      --latency START..DONE   the time from one probe to another; patterns
      --by KEY,...      a row for each: comm, pid, tid, probe, arg1, str(arg0), cpu,
                        stack. For --latency also what is the same at both ends: see
                        --match
      --match TERM[=TERM]     of --latency: tid (the default), or arguments
      --interval TIME   print and start anew each 1, 500ms, 2m... (without least and
                        greatest); a plain number is seconds
      --pprof FILE      write user stacks as a profile for 'go tool pprof'; the
                        values are counts, and sums with --sum

Output
  -o, --output FILE     not on standard output, which the command of -c may use
  -q, --quiet           on standard error, only what is wrong
      --json            an object a line; go doc github.com/gousdt/gousdt/cmd/usdttrace
                        explains them
      --stats           what the tracing itself cost for each hit
      --duration TIME   stop after 10, 500ms, 5m... from when all is attached
      --mode MODE       force multi, single or single-ip
  -h, --help            this text
      --version         the version

Ctrl-C stops, detaches at once and prints what the hits came to; once more, after a
second, ends without. A summary goes to standard error. Exit status: 0 something
was watched, 1 no probe matched, 2 an error.

Examples
  usdttrace -c 'python3 script.py' --str 0 --str 1 'python:function__entry'
  usdttrace --str 0 /usr/lib/postgresql/15/bin/postgres postgresql:query__start
  usdttrace -a --latency postgresql:query__start..postgresql:query__done
  usdttrace -p 1234 --count --by comm,probe 'hotspot:*'
`
