// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gousdt/gousdt/bench/internal/peer"
)

// A daemon counts the hits of execProbe in the target, and tells them over
// HTTP, as Prometheus reads them.
type daemon struct {
	cmd     *exec.Cmd
	address string
	target  *peer.Process
}

// daemonPatience is how long a daemon may take to count what there is to count.
const daemonPatience = 20 * time.Second

// freeAddress returns an address that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// run starts a daemon until the row ends, and waits until it counts hits.
func (e *env) run(d *daemon) error {
	var said bytes.Buffer
	d.cmd.Stderr = &said
	if err := d.cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		d.cmd.Wait()
		close(ended)
	}()
	e.cleanup(func() { peer.Interrupt(d.cmd.Process, ended) })
	for start := time.Now(); time.Since(start) < daemonPatience; time.Sleep(100 * time.Millisecond) {
		select {
		case <-ended:
			return fmt.Errorf("%s has ended: %s", d.cmd.Path, lastLine(said.String()))
		default:
		}
		if _, err := d.target.Ask("run", execProbe, 1); err != nil {
			return err
		}
		if hits, err := d.hits(); err == nil && hits > 0 {
			return nil
		}
	}
	return fmt.Errorf("%s counts nothing", d.cmd.Path)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// hits asks how many hits there have been.
func (d *daemon) hits() (hits uint64, err error) {
	answer, err := http.Get("http://" + d.address + "/metrics")
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(io.LimitReader(answer.Body, 1<<20))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") || !strings.Contains(line, "bench_hits") {
			continue
		}
		// A number such as 1e+06 follows the last blank.
		n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, err
		}
		hits += uint64(n)
	}
	return hits, lines.Err()
}

// processorTime is what all threads of the daemon have taken so far.
func (d *daemon) processorTime() (sum time.Duration, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", d.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // a thread that has ended
		}
		var ran time.Duration
		if _, err := fmt.Sscan(string(text), &ran); err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		sum += ran
	}
	return sum, nil
}

// idle returns the processor time that a daemon takes when nothing happens.
func (d *daemon) idle(e *env) (float64, error) {
	while := time.Duration(e.pick(10, 5, 1)) * idleTime / 10
	before, err := d.processorTime()
	if err != nil {
		return 0, err
	}
	time.Sleep(while)
	after, err := d.processorTime()
	return float64(after-before) * float64(idleTime) / float64(while), err
}

// counting returns the processor time that a daemon takes for hits, and checks
// that it has counted each of them.
func (d *daemon) counting(e *env) (float64, error) {
	const steps = 100
	part := e.pick(1, 2, 20)
	known, err := d.settled()
	if err != nil {
		return 0, err
	}
	before, err := d.processorTime()
	if err != nil {
		return 0, err
	}
	next := time.Now()
	for range steps / part {
		if _, err := d.target.Ask("run", execProbe, countedHits/steps); err != nil {
			return 0, err
		}
		next = next.Add(countedTime / steps)
		time.Sleep(time.Until(next))
	}
	wanted := known + countedHits/steps*uint64(steps/part)
	for start := time.Now(); ; time.Sleep(time.Second) {
		hits, err := d.hits()
		if err != nil {
			return 0, err
		}
		if hits == wanted {
			break
		}
		if hits > wanted || time.Since(start) > daemonPatience {
			return 0, fmt.Errorf("%s has counted %d hits of %d", d.cmd.Path, hits-known,
				wanted-known)
		}
	}
	after, err := d.processorTime()
	return float64(after-before) * float64(part), err
}

// settled returns the number of hits once it grows no more.
func (d *daemon) settled() (uint64, error) {
	last, err := d.hits()
	for err == nil {
		time.Sleep(1500 * time.Millisecond) // longer than the Collector's interval
		var now uint64
		if now, err = d.hits(); now == last {
			return now, err
		}
		last = now
	}
	return 0, err
}

// resident returns the memory of a daemon.
func (d *daemon) resident(*env) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", d.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	var size, resident float64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0, err
	}
	return resident * float64(os.Getpagesize()), nil
}
