// SPDX-License-Identifier: BSD-2-Clause

package main

// short is what -h says: one screen, with what is asked most.
const short = `Usage: usdttrace [FLAGS] [-p PID [-f] | -a] [FILE|LIBRARY...] PATTERN...
       usdttrace [FLAGS] [FILE|LIBRARY...] PATTERN... -- COMMAND [ARGUMENT...]

Watches USDT probes fire: prints a line for each hit, or what all come to.

Examples
  What fires here?         usdttrace --live -a
  Which probes are there?  usdttrace -l -p PID
  With which texts?        usdttrace -p PID 'postgresql:query__start'
  How often, by what?      usdttrace -a --count --by comm,probe 'hotspot:*'
  How long does it take?   usdttrace -a --latency postgresql:statement --by query
  What is slow, or hangs?  usdttrace -a --slow 5ms postgresql:statement
  Called from where?       usdttrace -a --count --by stack 'libstdcxx:throw'
  All of a command?        usdttrace 'python:function__entry' -- python3 script.py

PATTERN is PROVIDER:NAME with * and ?; the most important flags are
  -p PID, -a, FILE        a process, or its name; all processes; a program
  -l, --pairs             only list probes, or the pairs of them that are calls
      --where EXPR        only the hits for which it holds: arg2 > 4096 && pid == 9
      --count, --sum TERM, --hist TERM, --latency PAIR    aggregates
      --slow TIME PAIR... a line for each call that takes at least so long
      --by KEY,...        comm, pid, probe, container, stack, arg0, query...
      --sort COLUMN, --top N, --interval TIME, --live     of tables
      --stack, --str N    the stack of each hit, the text of an argument
      --duration TIME, -n N      when to end; Ctrl-C does, too
      --json, -o FILE, --pprof FILE, --flamegraph FILE    what to write, and where
      --help              all flags; --man | man -l - shows them as a man page
`

const usage = `Usage: usdttrace [FLAGS] [-p PID [-f] | -a] [FILE|LIBRARY...] PATTERN...
       usdttrace [FLAGS] [FILE|LIBRARY...] PATTERN... -- COMMAND [ARGUMENT...]

Watches USDT probes fire: prints a line for each hit, or aggregates of all hits.

What is watched
  PATTERN,...           PROVIDER:NAME with * ? [a-z] [!a-z] and \ to quote
  FILE, LIBRARY         these files, in every process that maps them, or in the one
                        of -p. A bare name is a file in the current directory, a
                        program in PATH, or a library in /etc/ld.so.cache
  -e, --probe PATTERN,...  patterns, whatever they look like; NAME alone means *:NAME
  -p, --pid PID         all files that the process maps, now or later; processes that
                        it forks are others. Also a name that one process has
  -f, --follow          with -p, also its descendants: those that are there, and
                        those to come, from their fork on
  -a, --all             all files that any process maps, now or later
  -- COMMAND [ARGUMENT...]  run a command, and watch it and its descendants. What is
                        attached before it begins misses nothing: each FILE, or with no
                        FILE the programs that the words name and the libraries that
                        these are linked with. Other files are attached when they are
                        mapped, and the summary says which were late. The command's
                        exit status becomes usdttrace's. Its standard output goes to
                        standard error where usdttrace prints on standard output
      --where EXPR      only the hits for which it holds, decided in the kernel:
                        arg2 > 4096 && arg0 == "postgres", pid, tid, comm, cpu,
                        cgroup, container
      --limits LIMIT=N,...  for -a and -p, how much is attached at most: file, owner and
                        all are sites, of a file (10000), of a container or user
                        (50000) and altogether (200000); owner-descriptors and
                        descriptors are descriptors. 0: no limit. Who has the most
                        gives way to others
  -l, --list            only list the probes that would be watched, with the types of
                        their arguments; needs no privileges but to read the files.
                        Without a PATTERN, all
      --pairs           only list the pairs of probes of which one starts what the
                        other ends, all or those that PATTERN... select, see --slow
PIDs are those of usdttrace's own PID namespace. If that is not the initial one,
processes of other namespaces have PID 0.

Events
      --str N[:MAX],...  argument N points to text: show up to MAX (128) bytes of it
      --bytes N:LENGTH,...    argument N points to LENGTH bytes: show them
      --str N:argM, --bytes N:argM  argument M is the length: show up to 256 bytes
      --names FILE,...  what the arguments of probes mean, as a provider definition:
                        PROVIDER.d of the application's sources, or QEMU's
                        trace-events-all. Those of PostgreSQL, Python, HotSpot, Ruby,
                        PHP, libvirt, glibc and others are known, and
                        ~/.config/gousdt/names/*.d are read. Names can be used for
                        arguments everywhere (query for arg0), and texts are shown
                        without --str. none: numbers only
      --stack           the user stack of each hit, with the names of functions; of a call
                        that of its end
      --start-stack     of calls, the user stack of the start. Each start pays for it
      --unwind HOW      for stacks, how the callers are found:
                        dwarf or dwarf:SIZE  from a copy of SIZE (16k, at most 64k)
                          bytes of the stack, which needs no frame pointers (default)
                        fp  by frame pointers, in the kernel, which costs less
      --debuginfod      for stacks, fetch debug files that are not installed, by build ID,
                        from the servers in DEBUGINFOD_URLS. They learn what runs here
      --lines           for stacks, source files with lines, and inlined functions, where
                        files or their debug files have them: go tool pprof -lines
  -n, --max-events N    stop after N events
      --every N         take about one hit in N, chosen at random in the kernel; with
                        --pprof, --flamegraph, --folded and --by stack, it counts for
                        those that were left out before it
      --rate N          the same, at most N hits a second for each processor, spread over
                        the second
      --buffer SIZE     of the ring buffer, in bytes or with k, M or G (8M)

Aggregates, computed in the kernel
      --count           how many there are, by probe unless --by says otherwise
      --sum TERM        a table of a TERM (arg0, arg1 & 7...): count, rate, average,
                        quantiles (at most 4.4 % from the truth), greatest, total
      --hist TERM       the distribution of a TERM, drawn
      --latency PAIR    the time between two probes, drawn, or with --by a table. It
                        needs no PATTERN. PAIR is START..DONE, or what the names of both
                        begin with, as in postgresql:query (--pairs lists the pairs of a
                        file). Calls that end at PROBE where they fail are part of
                        PAIR|PROBE; --by probe tells them apart
      --match TERM[=TERM]     for --latency and --slow, what START and DONE have in common: tid
                        (the default), or arguments
      --linear LOW:HIGH:STEP  for --hist and --latency, steps of equal size, drawn:
                        numbers, or times such as 0:10ms:1ms
      --by KEY,...      a row for each: comm, pid, tid, probe, arg1, str(arg0), query,
                        cpu, cgroup, container, stack. For --latency, keys of the DONE
                        probe, and start.arg1, str(start.arg0)... of the START. Beside
                        it, --sum and --hist take start.arg1, too, and duration
      --sort COLUMN     the greatest first: count, average, p50, p90, p99, max, total
      --top N           N rows, and all others in one that is named (other)
      --max-keys N      rows at most (16384). If there are more keys, those with the
                        fewest hits are in (other), and a count that some of these
                        hits may belong to ends in +
      --normalize DIALECT     sql or mysql: of keys that are texts, take statements for
                        equal that differ only in numbers, texts and comments
      --live            draw tables in place on the terminal, each second or --interval:
                        keys sort, filter and pause, enter looks closer (provider, probe,
                        keys, stacks), q ends and prints. Without a PATTERN, what fires
      --interval TIME   print at each interval, and start again from zero; with --slow,
                        print the calls that go on. On a terminal, tables are --live
      --pprof FILE      write user stacks as a profile for 'go tool pprof', with the
                        counts of hits, and with the sums of --sum
      --flamegraph FILE.html  write them as a flame graph: a page that needs nothing
                        but a browser, with search and zoom
      --chrome-trace FILE  write events for Perfetto and other viewers of Chrome's traces;
                        with --latency, each call with its time
      --folded FILE     write them for tools that draw flame graphs

Calls
      --slow TIME PAIR...   a line for each call that takes at least so long (0 for all).
                        PAIR stands in the place of a PATTERN: what the names of both
                        probes begin with, as in postgresql:query (query__start and
                        query__done), or START..DONE. A call that fails may end elsewhere:
                        PAIR|PROBE, as in 'postgresql:query|transaction__abort', shows it
                        as failed. postgresql:statement is every statement, in all
                        protocols (files of --names can define such calls). In EXPR,
                        start.arg0 is of the start, arg0 of the end, and duration is
                        the time: duration < 1s. Calls that go on for longer are
                        listed at the end, at each --interval and on SIGQUIT
                        (Ctrl-\): what hangs

Terms, in EXPR, TERM and KEY
  arg0 arg1...          arguments, by number or name
  str(arg0) str(arg0,N)  the text that an argument points to, or its first N bytes
  request->peer.port     a member of the structure that an argument points to, whose type
                         --names has: struct request *. The layout is that in the
                         program's debugging information (compile it with -g). --str
                         shows it in events. In quotes: a shell takes the >
  global.NAME            a variable of the program, by its symbol; also in str( )
  pid tid uid gid cpu comm cgroup provider probe      of the hit
  container             in EXPR, == or != with the beginning of the ID of a container
                        that runs already; as a key, its ID or the name of a unit
  site stack            as keys only: the address in the file, the user stack
  4096 0xff 2.5 "text"  numbers and texts, in EXPR
  An integer can be masked: arg1 & 7. EXPR compares by == != < <= > >= and combines
  by && || ! and parentheses. What cannot be read is neither equal nor unequal.

Output
  -o, --output FILE     print into FILE: a command may use standard output
      --color WHEN      auto (on a terminal, unless NO_COLOR is set), always or never.
                        On a terminal, tables and the texts of events are cut to its
                        width; in files and pipes they are whole
      --json, --format json  print an object on each line, which
                        github.com/gousdt/gousdt/blob/main/docs/json.md explains
  -q, --quiet           on standard error, print only warnings and errors
      --stats           say what the tracing itself costs for each hit, and how much
                        of --limits is in use
      --duration TIME   stop after that time, once everything is attached
      --mode MODE       how to attach, for tests: multi, single or single-ip
      --cleanup         remove what tracers that were killed have left in tracefs, as
                        the next run does by itself; the status is 1 if that is nothing
  -h                    the most important of it, on one screen
      --help            this text
      --version         the version, and what the kernel allows
      --man             this text as a man page: usdttrace --man | man -l -
      --completion SHELL  what has bash, zsh or fish complete flags, and the probes of
                        the FILE or PID on the line: source <(usdttrace --completion bash)
TIME is in seconds, or has a unit: 0.5, 500ms, 2m. Flags that take a list (KEY,...)
can also be repeated.

Ctrl-C stops, detaches at once and prints the aggregates. Another one, at least
a second later, ends usdttrace without that. A summary goes to standard error. Exit
status: 0 something was watched, 1 no probe matched, 2 an error, 141 nobody reads the
output any more; else that of the command, or 128 and the signal that ended it. A
command that still runs is ended by SIGTERM: the status is 143 after --max-events and
--duration, 130 after Ctrl-C.

Examples
  usdttrace --str 0,1 'python:function__entry' -- python3 script.py
  usdttrace --str 0 /usr/lib/postgresql/15/bin/postgres postgresql:query__start
  usdttrace -a --latency postgresql:statement --by query
  usdttrace --slow 5ms /usr/lib/postgresql/15/bin/postgres postgresql:statement
  usdttrace --pprof stacks.pb.gz 'libstdcxx:throw' -- ./server --port 80
  usdttrace -p 1234 --count --by comm,probe 'hotspot:*'
`

// completions are what can stand for placeholders of the help.
func completions() map[string][]string {
	numbers := []string{"pid", "tid", "uid", "gid", "cpu", "cgroup", "cookie", "arg0", "arg1",
		"arg2", "arg3"}
	return map[string][]string{
		"KEY": append([]string{"comm", "probe", "provider", "site", "container", "stack",
			"str(arg0)", "str(arg1)"}, numbers...),
		"TERM":        numbers,
		"TERM[=TERM]": numbers,
		"HOW":         {unwindDWARF, unwindFP},
		"MODE":        {"multi", "single", "single-ip"},
		"WHEN":        {"auto", "always", "never"},
		"DIALECT":     {"sql", "mysql"},
		"COLUMN":      {"count", "average", "p50", "p90", "p99", "max", "total"},
	}
}
