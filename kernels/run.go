// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gousdt/gousdt/kernels/internal/platform"
	"github.com/gousdt/gousdt/kernels/internal/vm"
)

// matrix is one run of the command.
type matrix struct {
	options    options
	repository string // directory
	work       string // temporary directory
	cache      string // directory
	// untraced builds the traced programs, once, and says for which machines
	// that failed.
	untraced func() map[string]error
}

func newMatrix(ctx context.Context, o options) (*matrix, error) {
	m := &matrix{options: o}
	cache, err := os.UserCacheDir()
	if err == nil {
		m.repository, err = findCheckout()
	}
	if err == nil {
		m.cache = filepath.Join(cache, "gousdt", "kernels")
		err = os.MkdirAll(filepath.Join(m.cache, "logs"), 0o755)
	}
	if err == nil {
		m.work, err = os.MkdirTemp("", "gousdt-matrix-")
	}
	m.untraced = sync.OnceValue(func() map[string]error {
		return buildAllTraced(ctx, m.repository)
	})
	return m, err
}

// runAll fetches, builds, and then runs several machines at once. The last ones
// of the list are those that take longest, and begin.
func (m *matrix) runAll(ctx context.Context, list []platform.Kernel) []row {
	rows := make([]row, len(list))
	builds := make(map[string]func() (*machineBuild, error))
	var running sync.WaitGroup
	slots := make(chan struct{}, max(m.options.parallel, 1))
	for i, k := range slices.Backward(list) {
		r := &rows[i]
		r.kernel = k
		image, err := m.kernel(ctx, k)
		if err != nil {
			r.notRun = err
			m.progress("%v: not run: %v", k, err)
			continue
		}
		r.version = image.version
		if builds[k.Machine] == nil {
			builds[k.Machine] = sync.OnceValues(func() (*machineBuild, error) {
				start := time.Now()
				b, err := m.build(ctx, k.Machine)
				m.progress("%s: tests and traced programs built in %.0f s", k.Machine,
					time.Since(start).Seconds())
				return b, err
			})
		}
		b, err := builds[k.Machine]()
		if err != nil {
			r.trouble = err
			continue
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			m.runOne(ctx, b, image, r)
			m.progress("%v: %s", k, r.summary())
		})
	}
	running.Wait()
	return rows
}

func (m *matrix) progress(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
}

// runOne boots a kernel and fills in its row.
func (m *matrix) runOne(ctx context.Context, b *machineBuild, image image, r *row) {
	if r.notRun = b.noEmulator; r.notRun != nil {
		return
	}
	guest, err := m.guest(b, r.kernel)
	if err != nil {
		r.trouble = err
		return
	}
	r.log = filepath.Join(m.cache, "logs",
		strings.ReplaceAll(r.kernel.String(), "/", "-")+".log")
	log, err := os.Create(r.log)
	if err != nil {
		r.trouble = err
		return
	}
	defer log.Close()

	outputs := make([]bytes.Buffer, len(b.suites))
	result, err := guest.Run(ctx, vm.Options{
		Emulator: b.emulator, Kernel: image.path, Modules: image.modules, Init: b.first,
		Memory: m.options.memory,
		Output: func(job int, line string) {
			// The mark that tells test2json where a test's own output ends.
			fmt.Fprintln(log, strings.ReplaceAll(line, "\x16", ""))
			if job >= 0 && job < len(outputs) {
				fmt.Fprintln(&outputs[job], line)
				if m.options.verbose {
					fmt.Printf("%v| %s\n", r.kernel, strings.ReplaceAll(line, "\x16", ""))
				}
			}
		},
	})
	if result.Attempts > 1 {
		m.progress("%v: booted %d times", r.kernel, result.Attempts)
	}
	r.trouble = err
	r.release, r.total = result.Release, result.Total
	for i, s := range b.suites {
		status, ended := result.Statuses[i]
		if !ended && outputs[i].Len() == 0 {
			continue // never started; trouble says why
		}
		modes := findModes(outputs[i].Bytes())
		p, err := readTests(ctx, &outputs[i])
		if err != nil {
			r.trouble = errors.Join(r.trouble, err)
			continue
		}
		p.verdict(ended, status, m.options.pattern != "")
		r.add(s.ImportPath, p, modes)
	}
}

// guest puts a guest together.
func (m *matrix) guest(b *machineBuild, k platform.Kernel) (*vm.Guest, error) {
	// CI is not passed on: it promises that everything is there, and a guest
	// has neither a compiler nor a database. What is skipped, and why, is
	// printed instead.
	g, err := vm.NewGuest(b.machine, m.repository, k.String(), os.Environ())
	if err != nil {
		return nil, err
	}
	arguments := []string{"-test.v=test2json", "-test.paniconexit0",
		"-test.timeout=" + m.options.timeout.String()}
	if m.options.pattern != "" {
		arguments = append(arguments, "-test.run="+m.options.pattern)
	}
	if m.options.short {
		arguments = append(arguments, "-test.short")
	}
	for _, s := range b.suites {
		// A little more, so that it is the test that tells what hangs.
		timeout := m.options.timeout + 15*time.Second
		if err := g.AddTest(s.binary, s.Dir, timeout, arguments...); err != nil {
			return nil, err
		}
	}
	return g, g.AddLibraries()
}
