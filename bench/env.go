// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gousdt/gousdt/bench/internal/compare"
	"github.com/gousdt/gousdt/bench/internal/peer"
	"github.com/gousdt/gousdt/bench/internal/synth"
	"github.com/gousdt/gousdt/usdt"
)

// scale says how much is done.
type scale uint8

const (
	full  scale = iota // for results to publish
	quick              // for a look
	smoke              // to see whether everything works
)

// env is what rows share.
type env struct {
	scale    scale
	dir      string // for files, removed at the end
	cleanups []func()
	shared   *shared
}

// shared is what is prepared once for several rows, when the first of them
// needs it.
type shared struct {
	tracers func() (*tracers, error)
}

func newEnv(s scale) (*env, error) {
	mode, err := usdt.ModeAuto.Resolve()
	if err != nil {
		return nil, err
	}
	if mode != usdt.ModeMulti {
		return nil, &unableError{"this kernel has no uprobe_multi links (Linux 6.6), of which the floors are made"}
	}
	dir, err := os.MkdirTemp("", "gousdt-bench-")
	if err != nil {
		return nil, err
	}
	e := &env{scale: s, dir: dir}
	e.shared = &shared{tracers: sync.OnceValues(func() (*tracers, error) { return newTracers(e) })}
	e.cleanup(func() { os.RemoveAll(dir) })
	return e, nil
}

// cleanup has a function called by close, the last one first.
func (e *env) cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

func (e *env) close() {
	for _, f := range slices.Backward(e.cleanups) {
		f()
	}
	e.cleanups = nil
}

// nested returns an env for one row.
func (e *env) nested() *env { return &env{scale: e.scale, dir: e.dir, shared: e.shared} }

// pick returns the number for the scale.
func (e *env) pick(forFull, forQuick, forSmoke int) int {
	return [...]int{full: forFull, quick: forQuick, smoke: forSmoke}[e.scale]
}

// effort returns how long to measure a row.
func (e *env) effort(r row) compare.Effort {
	switch e.scale {
	case full:
		return compare.Effort{Rounds: r.rounds, Sample: r.sample}
	case quick:
		return compare.Effort{Rounds: max(3, r.rounds/5), Sample: r.sample / 2}
	default:
		return compare.Effort{Rounds: 1}
	}
}

// synthetic writes a synthetic file.
func (e *env) synthetic(f synth.File) (string, error) {
	file, err := os.CreateTemp(e.dir, "synthetic-*.so")
	if err != nil {
		return "", err
	}
	file.Close()
	e.cleanup(func() { os.Remove(file.Name()) })
	return file.Name(), f.Write(file.Name())
}

// copyOf makes a copy of a program, a file of its own.
func (e *env) copyOf(program string) (string, error) {
	text, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(e.dir, "copy-")
	if err != nil {
		return "", err
	}
	e.cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, filepath.Base(program))
	return path, os.WriteFile(path, text, 0o755)
}

// start starts a program of peers.
func (e *env) start(name string) (*peer.Process, error) { return e.untilClosed(peer.Start(name)) }

// untilClosed has a program ended by close.
func (e *env) untilClosed(p *peer.Process, err error) (*peer.Process, error) {
	if err == nil {
		e.cleanup(func() { p.Close() })
	}
	return p, err
}

// ask makes a Measure of a command that ends in the number of repetitions and
// whose answer begins with the nanoseconds.
func ask(p *peer.Process, words ...any) func(n int) (float64, error) {
	return func(n int) (float64, error) {
		spent, err := p.Number(append(slices.Clone(words), n)...)
		return spent / float64(n), err
	}
}

// goBuild builds a command of this module, with flags.
func (e *env) goBuild(name string, flags ...string) (string, error) {
	folder, err := peer.Folder()
	if err != nil {
		return "", err
	}
	path := filepath.Join(e.dir, name)
	cmd := exec.Command("go",
		slices.Concat([]string{"build", "-o", path}, flags, []string{"./cmd/" + name})...)
	cmd.Dir = filepath.Dir(folder)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as releases are
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/%s: %w: %s", name, err, out)
	}
	e.cleanup(func() { os.Remove(path) })
	return path, nil
}

// newest returns the file that matches one of the patterns, the last in order
// if there are several.
func newest(what string, patterns ...string) (string, error) {
	for _, pattern := range patterns {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return slices.Max(found), nil
		}
	}
	return "", &notHereError{reason: fmt.Sprintf("no %s (looked for %s)", what, patterns[0])}
}

// libjvm prefers the distribution's.
func libjvm() (string, error) {
	return newest("libjvm.so", "/usr/lib/jvm/java-*-openjdk-*/lib/server/libjvm.so",
		"/usr/lib/jvm/*/lib/server/libjvm.so")
}

func postgres() (string, error) {
	return newest("postgres", "/usr/lib/postgresql/*/bin/postgres", "/usr/bin/postgres",
		"/usr/local/pgsql/bin/postgres")
}

// since returns the nanoseconds since a moment.
func since(start time.Time) float64 { return float64(time.Since(start).Nanoseconds()) }

// timed returns how long something took.
func timed(work func() error) (float64, error) {
	start := time.Now()
	err := work()
	return since(start), err
}
