// SPDX-License-Identifier: BSD-2-Clause

package main

const usage = `Usage: usdtlist [FLAGS] FILE|LIBRARY... [PATTERN...]
       usdtlist [FLAGS] -p PID [FILE|LIBRARY...] [PATTERN...]
       usdtlist [FLAGS] -a [FILE|LIBRARY...] [PATTERN...]

Lists the USDT probes of executables, shared libraries, object files and
separate debug files of any machine. Needs no privileges but to look into
processes of other users.

Words
  FILE            a path
  LIBRARY         a bare name, found as the dynamic linker would (libstdc++.so.6;
                  libc.so and c find libc.so.6) or along PATH (python3)
  PATTERN         PROVIDER:NAME with * ? [a-z] [!a-z] and \ to quote; picks the
                  probes to list. A word is a pattern if it holds ':', '*', '?'
                  or '[', does not start with / or ./ or ../, and is no file.

Processes
  -p, --pid PID           the files that a process executes: its program and the
                          libraries it has mapped; can be repeated
  -a, --all               those of every process, each file once, with its PIDs
  FILE and LIBRARY then pick among these. They are what the process calls them,
  in a container too: an absolute path, or a bare name (libc.so.6, c, python3)
  for what is mapped by it, whatever further version its path has. With -p, what
  is not mapped is looked for where the process would find it.
  "Path here" is a path by which other tools reach a file that is deleted, or
  elsewhere in the eyes of the process.

Flags
  -m, --match PATTERN     a pattern, whatever it looks like; NAME alone means
                          *:NAME; can be repeated
  -v, --verbose           every site, with its arguments decoded
      --json              a JSON document (go doc github.com/gousdt/gousdt/cmd/usdtlist
                          explains the fields)
      --format FORMAT     table     one line per probe (the default)
                          json      the same as --json
                          bpftrace  lines for other tools: usdt:PATH:PROVIDER:NAME
                          bcc       u:PATH:NAME, for trace, funccount, argdist
                          perf      perf probe -x PATH %sdt_PROVIDER:NAME
                          libbpf    SEC("usdt/PATH:PROVIDER:NAME")
      --debug-file FILE   separate debug file with the symbols that arguments
                          name; without it, one is looked for by build ID under
                          /usr/lib/debug
  -h, --help              this text
      --version           the version

Columns
  PROVIDER NAME           of the probe
  SITES                   how many places in the code carry it
  LOCATION                virtual address of the first of them
  SEMAPHORE               address of its counter of tracers, - if it has none
  ARGUMENTS               where its arguments are: [-]SIZE@OPERAND, - for a signed one

Exit status: 0 probes were listed, 1 there were none, 2 something that was asked
for could not be read; the rest is listed. With -a, processes that may not be
read are counted, and leave the exit status as it is.

Examples
  $ usdtlist libstdc++.so.6 'libstdcxx:*throw'
  File: /lib/x86_64-linux-gnu/libstdc++.so.6
  PROVIDER   NAME     SITES  LOCATION  SEMAPHORE  ARGUMENTS
  libstdcxx  throw        1  0xa90a1   -          8@%rdi 8@%rsi
  libstdcxx  rethrow      1  0xa9139   -          8@%rdx 8@%rax
  $ usdtlist -p 812 'postgresql:query__*'
  $ sudo usdtlist -a libstdc++.so.6
`
