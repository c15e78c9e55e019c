// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gousdt/gousdt/bench/internal/compare"
	"github.com/gousdt/gousdt/bench/internal/peer"
)

const (
	byUsdtlistTree = "usdtlist -r"
	byReadelfTree  = "readelf -n with all files"

	byUsdtlist = "usdtlist"
	byReadelf  = "readelf -n"
	byBpftrace = "bpftrace -l"
	byTplist   = "bcc's tplist"
)

func toolRows() []row {
	return []row{
		{
			name:   "tool/time",
			title:  "list the probes of libjvm by a whole process: time",
			rounds: 25,
			goals: []compare.Goal{
				{Of: byUsdtlist, Than: byReadelf, Times: 1},
				{Of: byUsdtlist, Than: byBpftrace, Times: 1.0 / 15},
			},
			prepare: func(e *env) ([]compare.Contestant, error) { return e.tools(0) },
		},
		{
			name:   "tool/memory",
			title:  "list the probes of libjvm by a whole process: peak of resident memory",
			unit:   compare.Bytes,
			rounds: 5,
			goals:  []compare.Goal{{Of: byUsdtlist, More: 12 << 20}},
			prepare: func(e *env) ([]compare.Contestant, error) {
				return e.tools(1)
			},
		},
		{
			name:    "tool/tree",
			title:   "list the files with probes among all of /usr (/usr/bin in a quick run), in a warm cache",
			rounds:  9,
			goals:   []compare.Goal{{Of: byUsdtlistTree, Than: byReadelfTree, Times: 0.5}},
			prepare: func(e *env) ([]compare.Contestant, error) { return e.treeTools(0) },
		},
		{
			name:    "tool/tree-memory",
			title:   "list the files with probes among all of /usr (/usr/bin in a quick run): peak of resident memory",
			unit:    compare.Bytes,
			rounds:  1,
			goals:   []compare.Goal{{Of: byUsdtlistTree, More: 32 << 20}},
			prepare: func(e *env) ([]compare.Contestant, error) { return e.treeTools(1) },
		},
	}
}

// tools returns the tools that list. Each run has two costs: nanoseconds and
// bytes.
func (e *env) tools(cost int) ([]compare.Contestant, error) {
	path, err := libjvm()
	if err != nil {
		return nil, err
	}
	usdtlist, err := e.goBuild("usdtlist")
	if err != nil {
		return nil, err
	}
	launcher, err := e.start("launch")
	if err != nil {
		return nil, err
	}
	contestant := func(name, command string, arguments ...any) compare.Contestant {
		command, err := exec.LookPath(command)
		if err != nil {
			return missing(name, err)
		}
		return compare.Contestant{Name: name, Once: true, Measure: func(int) (float64, error) {
			costs, err := launched(launcher, append([]any{command}, arguments...)...)
			return costs[cost], err
		}}
	}
	return []compare.Contestant{
		contestant(byUsdtlist, usdtlist, path),
		contestant(byReadelf, "readelf", "-n", path),
		contestant(byBpftrace, "bpftrace", "-l", "usdt:"+path+":*"),
		contestant(byTplist, tplist(), "-l", path),
	}, nil
}

// treeTools returns the tools that list the files of a directory. What readelf
// is given was found before: it does not look itself. Each has run once before
// it is measured: the first one finds nothing in the page cache, which takes
// many times as long.
func (e *env) treeTools(cost int) ([]compare.Contestant, error) {
	tree := "/usr"
	if e.scale != full {
		tree = "/usr/bin"
	}
	usdtlist, err := e.goBuild("usdtlist")
	if err != nil {
		return nil, err
	}
	launcher, err := e.start("launch")
	if err != nil {
		return nil, err
	}
	files := filepath.Join(e.dir, "files")
	e.cleanup(func() { os.Remove(files) })
	if err := exec.Command("sh", "-c", "find "+tree+" -type f -print0 >"+files).Run(); err != nil {
		return nil, err
	}
	contestant := func(name, command string) compare.Contestant {
		run := func() (float64, error) {
			// Files that are not ELF make readelf fail.
			costs, err := launched(launcher, "sh", "-c", command+"; true")
			return costs[cost], err
		}
		isWarm := false
		return compare.Contestant{Name: name, Once: true, Measure: func(int) (float64, error) {
			if !isWarm {
				if _, err := run(); err != nil {
					return 0, err
				}
				isWarm = true
			}
			return run()
		}}
	}
	all := []compare.Contestant{contestant(byUsdtlistTree, usdtlist+" -r "+tree)}
	if _, err := exec.LookPath("readelf"); err != nil {
		return append(all, missing(byReadelfTree, err)), nil
	}
	return append(all, contestant(byReadelfTree, "xargs -0 -a "+files+" readelf -n")), nil
}

// tplist returns the name that the distribution gives to the tool.
func tplist() string {
	for _, name := range []string{"tplist-bpfcc", "/usr/share/bcc/tools/tplist"} {
		if _, err := exec.LookPath(name); err == nil {
			return name
		}
	}
	return "tplist"
}

// launched runs a command and returns its time in nanoseconds and its peak of
// memory in bytes.
func launched(launcher *peer.Process, command ...any) ([2]float64, error) {
	answer, err := launcher.Ask(append([]any{"run"}, command...)...)
	if err != nil {
		return [2]float64{}, err
	}
	var numbers [3]float64
	for i := range numbers {
		if i >= len(answer) {
			return [2]float64{}, fmt.Errorf("launch: a short answer: %q", answer)
		}
		if numbers[i], err = strconv.ParseFloat(answer[i], 64); err != nil {
			return [2]float64{}, err
		}
	}
	if numbers[2] != 0 {
		return [2]float64{}, fmt.Errorf("%v: exit status %.0f", command[0], numbers[2])
	}
	return [2]float64{numbers[0], numbers[1] * 1024}, nil
}

// bccPython returns a Python that has bcc: the system's, where another one
// comes first in PATH.
func bccPython() (string, bool) {
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(python, "-c", "import bcc").Run() == nil {
			return python, true
		}
	}
	return "", false
}

func bccVersion() string {
	python, ok := bccPython()
	if !ok {
		return ""
	}
	out, _ := exec.Command(python, "-c", "import bcc; print(bcc.__version__)").Output()
	return strings.TrimSpace(string(out))
}
