// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/gousdt/gousdt/elfnote"
)

const (
	byDebugELF = "debug/elf"
	byPread    = "preads in C"
	byLibelf   = "libelf"

	// byHand does the same work as this module.
	byHand = "by hand in C"
)

// manySites is the largest file that is listed.
const manySites = 100_000

func listRows() []row {
	return []row{{
		name:   "list/libjvm",
		title:  "list the probes of libjvm, one open to close, in process",
		rounds: 60,
		times:  100,
		goals:  []goal{{Of: ours, Than: byDebugELF, Times: 1.1}, {Of: ours, Than: byHand, Times: 1.5}},
		prepare: func(e *env) ([]contestant, error) {
			path, err := libjvm()
			return e.listers(path), err
		},
	}, {
		name:   "list/100000",
		title:  fmt.Sprintf("list a file of %d sites", manySites),
		rounds: 30,
		goals:  []goal{{Of: ours, Than: byHand, Times: 1.2}},
		prepare: func(e *env) ([]contestant, error) {
			path, err := e.synthetic(
				syntheticFile{Sites: manySites, Probes: manySites / 100, Specs: 200})
			return e.listers(path), err
		},
	}}
}

func (e *env) listers(path string) []contestant {
	contestants := []contestant{
		repeated(ours, func() error { return listByElfnote(path) }),
		repeated(byDebugELF, func() error { return listByDebugELF(path) }),
	}
	for _, c := range []struct{ name, program string }{
		{byHand, "byhand"}, {byLibelf, "libelf"}, {byPread, "floor"},
	} {
		p, err := e.start(c.program)
		if err != nil {
			contestants = append(contestants, missing(c.name, err))
			continue
		}
		contestants = append(contestants,
			contestant{Name: c.name, Measure: ask(p, "list", path)})
	}
	return contestants
}

func listByElfnote(path string) error {
	f, err := elfnote.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sites := 0
	for _, err := range f.Sites() {
		if err != nil {
			return err
		}
		sites++
	}
	if sites == 0 {
		return errors.New("no sites")
	}
	return nil
}

// listByDebugELF does not even look at what it has read.
func listByDebugELF(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	section := f.Section(".note.stapsdt")
	if section == nil {
		return errors.New("no notes")
	}
	_, err = section.ReadAt(make([]byte, section.FileSize), 0)
	return err
}

const (
	byUsdtlistTree = "usdtlist -r"
	byReadelfTree  = "readelf -n with all files"

	byUsdtlist = "usdtlist"
	byReadelf  = "readelf -n"
	byBpftrace = "bpftrace -l"
	byTplist   = "bcc's tplist"
	byLine     = "a line printed by Go"
	byVersion  = "usdtlist --version"

	// lineProgram shows what any command in Go takes to start and to end.
	lineProgram = `package main

import "os"

func main() { os.Stdout.WriteString("line\n") }
`
)

func toolRows() []row {
	return []row{{
		name:   "tool/time",
		title:  "list the probes of libjvm by a whole process: time",
		rounds: 25,
		goals: []goal{{Of: byUsdtlist, Than: byReadelf, Times: 1},
			{Of: byUsdtlist, Than: byBpftrace, Times: 1.0 / 15}},
		prepare: func(e *env) ([]contestant, error) { return e.tools(inNanoseconds) },
	}, {
		name:   "tool/memory",
		title:  "list the probes of libjvm by a whole process: peak of resident memory",
		unit:   inBytes,
		rounds: 5,
		goals: []goal{{Of: byUsdtlist, Than: byReadelf, Times: 1.5}, // 4 MB
			{Of: byUsdtlist, Than: byBpftrace, Times: 0.1}},
		prepare: func(e *env) ([]contestant, error) { return e.tools(inBytes) },
	}, {
		name:    "tool/tree",
		title:   "list the files with probes among all of /usr (/usr/bin in a quick run), in a warm cache",
		rounds:  9,
		goals:   []goal{{Of: byUsdtlistTree, Than: byReadelfTree, Times: 0.5}},
		prepare: (*env).treeTools,
	}}
}

// tools returns the tools that list the probes of libjvm.
func (e *env) tools(unit unit) ([]contestant, error) {
	path, err := libjvm()
	if err != nil {
		return nil, err
	}
	return e.commands(unit, [][]any{
		{byUsdtlist, "usdtlist", path},
		{byReadelf, "readelf", "-n", path},
		{byVersion, "usdtlist", "--version"}, // what its size takes
		{byLine, "line"},
		{byBpftrace, "bpftrace", "-l", "usdt:" + path + ":*"},
		{byTplist, installed("tplist-bpfcc", "/usr/share/bcc/tools/tplist"), "-l", path},
	})
}

// treeTools returns the tools that list the files of a directory. The files for
// readelf are found before: it does not search directories.
func (e *env) treeTools() ([]contestant, error) {
	tree := "/usr"
	if e.scale != full {
		tree = "/usr/bin"
	}
	files := filepath.Join(e.dir, "files")
	if err := exec.Command("sh", "-c", "find "+tree+" -type f -print0 >"+files).Run(); err != nil {
		return nil, err
	}
	// Files that are not ELF make readelf fail.
	return e.commands(inNanoseconds, [][]any{
		{byUsdtlistTree, "usdtlist", "-r", tree},
		{byReadelfTree, "sh", "-c", "xargs -0 -a " + files + " readelf -n; true"},
	})
}

// commands returns commands, each a name, a program and its arguments. Each has
// run once before it is measured: the first one finds nothing in the page
// cache, which takes many times as long.
func (e *env) commands(unit unit, all [][]any) ([]contestant, error) {
	usdtlist, err := e.goBuild("usdtlist")
	if err != nil {
		return nil, err
	}
	err = os.WriteFile(filepath.Join(e.dir, "line.go"), []byte(lineProgram), 0o600)
	if err != nil {
		return nil, err
	}
	line, err := e.goTool("line", e.dir, "build", "line.go")
	if err != nil {
		return nil, err
	}
	launcher, err := e.start("launch")
	if err != nil {
		return nil, err
	}
	var contestants []contestant
	for _, words := range all {
		name, command := words[0].(string), words[1:]
		switch command[0] {
		case "usdtlist":
			command[0] = usdtlist
		case "line":
			command[0] = line
		}
		if _, err := exec.LookPath(command[0].(string)); err != nil {
			contestants = append(contestants, missing(name, err))
			continue
		}
		run := func() (float64, error) {
			var spent, kib float64
			status := 0
			err := launcher.Scan(append([]any{"run"}, command...), &spent, &kib, &status)
			if err == nil && status != 0 {
				err = fmt.Errorf("%v: exit status %d", command[0], status)
			}
			if unit == inBytes {
				return kib * 1024, err
			}
			return spent, err
		}
		warm := sync.OnceValues(run)
		contestants = append(contestants, once(name, func() (float64, error) {
			if _, err := warm(); err != nil {
				return 0, err
			}
			return run()
		}))
	}
	return contestants, nil
}

// installed returns the first of some names that is installed, or the last.
func installed(names ...string) string {
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			return name
		}
	}
	return names[len(names)-1]
}

// bccPython returns a Python that has bcc, and its version: the newest one,
// which was unpacked beside the system, or else the system's, where another one
// comes first in PATH. Both are "" if there is none.
func bccPython() (python, version string) {
	for _, python := range []string{"python3-bcc", "/usr/bin/python3", "python3"} {
		out, err := exec.Command(python, "-c", "import bcc; print(bcc.__version__)").Output()
		if err == nil {
			return python, strings.TrimSpace(string(out))
		}
	}
	return "", ""
}
