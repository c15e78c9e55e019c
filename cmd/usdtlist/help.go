// SPDX-License-Identifier: BSD-2-Clause

package main

// short is what -h says: one screen, with what is asked most.
const short = `Usage: usdtlist [FLAGS] FILE|LIBRARY... [PATTERN...]
       usdtlist [FLAGS] -r DIRECTORY... | -p PID,... | -a  [PATTERN...]

Lists the USDT probes of executables, libraries and processes, for any machine.

Examples
  Of a program or library?   usdtlist python3
  What do they mean?         usdtlist -v python3 'python:gc__*'
  Of a process?              usdtlist -p PID
  Of all that runs here?     sudo usdtlist -a 'postgresql:query__*'
  Of an image, or a folder?  usdtlist -r /usr/lib
  For bpftrace, perf, bcc?   usdtlist --format bpftrace libc.so.6

PATTERN is PROVIDER:NAME with * and ?; the most important flags are
  -p PID,..., -a      processes, by number or name; all of them
  -r                  what is in directories
  -v                  every site, its arguments decoded, and what they mean
      --json          a document
      --names FILE    what arguments mean: PROVIDER.d of an application's sources
      --help          all flags; --man | man -l - shows them as a man page
`

const usage = `Usage: usdtlist [FLAGS] FILE|LIBRARY... [PATTERN...]
       usdtlist [FLAGS] -r DIRECTORY... [PATTERN...]
       usdtlist [FLAGS] -p PID [FILE|LIBRARY...] [PATTERN...]
       usdtlist [FLAGS] -a [FILE|LIBRARY...] [PATTERN...]

Lists the USDT probes of executables, shared libraries, object files and
separate debug files, for any machine. Needs privileges only to read the
processes of other users.

Words
  FILE            a path
  LIBRARY         a bare name: a file in the current directory, a program in PATH
                  (python3), or a library in /etc/ld.so.cache (libstdc++.so.6;
                  libc.so and c find libc.so.6)
  PATTERN,...     PROVIDER:NAME with * ? [a-z] [!a-z] and \ to quote; picks the
                  probes to list. A word is a pattern if it holds ':', '*', '?'
                  or '[', does not start with / or ./ or ../, and is no file.

Directories
  -r, --recursive         all files in the directories, and in those below. Symbolic
                          links in them are not followed, and file systems of the
                          kernel (/proc, /sys) are left out
      --files-from FILE   the files that FILE names, one on each line, or each ended by
                          a NUL byte; - is standard input
  Only files with probes are listed. Others are not mentioned, nor files that are not
  ELF. What may not be read is counted, and does not change the exit status.

Processes
  -p, --pid PID,...       (or the name of processes) the files that a process executes: its program and the
                          libraries that it maps
  -a, --all               those of every process, each file once, with its PIDs
  FILE and LIBRARY then pick among these, by the names that the process sees, also
  in a container: an absolute path, or a bare name (libc.so.6, c, python3), which
  also means a file with further version numbers. With -p, an absolute path may be
  that of a file that is not mapped.
  "Path here" is a path by which other tools reach a file that is deleted, or that
  the process sees elsewhere.

Flags
  -e, --probe PATTERN,...  patterns, whatever they look like; NAME alone means
                          *:NAME, and \, is a comma
  -v, --verbose           every site, with its arguments decoded
      --json              a JSON document; the fields are explained at
                          https://github.com/gousdt/gousdt/blob/main/docs/json.md
      --format FORMAT     table     one line for each probe (the default)
                          json      the same as --json
                          bpftrace  lines for other tools: usdt:PATH:PROVIDER:NAME
                          bcc       u:PATH:NAME, for trace, funccount, argdist
                          perf      perf probe -x PATH %sdt_PROVIDER:NAME
                          libbpf    SEC("usdt/PATH:PROVIDER:NAME")
      --debug-file FILE   a separate debug file, for the symbols that arguments
                          name. Without it, the one that has the file's build ID
                          below /usr/lib/debug or in debuginfod's cache is used,
                          or the one that the file names (.gnu_debuglink)
      --debuginfod        fetch debug files that are not installed, by build ID, from
                          the servers in DEBUGINFOD_URLS. They learn what is here
      --names FILE,...    what the arguments of probes mean, for -v and --json: a
                          provider definition, PROVIDER.d of the application's
                          sources, or QEMU's trace-events-all. Those of PostgreSQL,
                          Python, HotSpot, Ruby, PHP, libvirt, glibc and others are
                          known, and ~/.config/gousdt/names/*.d are read. none: no
                          names
  -h                      the most important of it, on one screen
      --help              this text
      --version           the version
      --man               this text as a man page: usdtlist --man | man -l -
      --completion SHELL  what has bash, zsh or fish complete flags, and the probes of
                          the FILE or PID on the line: source <(usdtlist --completion bash)
Flags that take a list (PID,...) can also be repeated.

Columns
  PROVIDER NAME           of the probe
  SITES                   how many places in the code have it
  LOCATION                virtual address of the first of them
  SEMAPHORE               address of its counter of tracers, - if it has none
  ARGUMENTS               where its arguments are: [-]SIZE@OPERAND, - for a signed one

Exit status: 0 probes were listed, 1 there were none, 2 something that was asked
for could not be read (the rest is listed). Processes that -a may not read are
counted, and do not change the exit status.

Examples
  $ usdtlist libstdc++.so.6 'libstdcxx:*throw'
  File: /lib/x86_64-linux-gnu/libstdc++.so.6
  PROVIDER   NAME     SITES  LOCATION  SEMAPHORE  ARGUMENTS
  libstdcxx  throw        1  0xa90a1   -          8@%rdi 8@%rsi
  libstdcxx  rethrow      1  0xa9139   -          8@%rdx 8@%rax
  $ usdtlist -p 812 'postgresql:query__*'
  $ sudo usdtlist -a libstdc++.so.6
`
