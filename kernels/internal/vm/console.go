// SPDX-License-Identifier: BSD-2-Clause

package vm

import (
	"bufio"
	"errors"
	"io"
	"strings"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

// NoJob stands for what the console says while no job runs.
const NoJob = -1

// console follows what a guest says.
type console struct {
	token  string
	output func(job int, line string)
	onBoot func() // called when the first process runs; may be nil

	job      int      // the one that runs, or NoJob
	last     []string // the end of the output, for an error
	release  string
	statuses map[int]int
	failed   string
	panicked string
	done     bool
}

// keptLines is how much of the console an error repeats.
const keptLines = 40

// maxConsoleLine is the length at which a line is cut in two.
const maxConsoleLine = 64 << 10

func newConsole(token string, output func(job int, line string)) *console {
	return &console{token: token, output: output, job: NoJob, statuses: make(map[int]int)}
}

// read follows the console until it is closed or the guest has said that it is
// done.
func (c *console) read(r io.Reader) error {
	lines := bufio.NewReaderSize(r, maxConsoleLine)
	for !c.done {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			c.line(string(line))
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// line takes one line. A serial terminal ends it with a carriage return.
func (c *console) line(line string) {
	line = strings.TrimRight(line, "\r\n")
	before, event, ok := platform.ParseMarker(c.token, line)
	if !ok {
		c.say(line)
		if c.panicked == "" && strings.Contains(line, "Kernel panic - not syncing") {
			c.panicked = line
		}
		return
	}
	if before != "" {
		c.say(before)
	}
	switch event.Kind {
	case platform.Booted:
		c.release = event.Text
		if c.onBoot != nil {
			c.onBoot()
		}
	case platform.Started:
		c.job = event.Job
	case platform.Exited:
		c.statuses[event.Job] = event.Status
		c.job = NoJob
	case platform.Failed:
		c.failed = event.Text
	case platform.Done:
		c.done = true
	}
}

func (c *console) say(line string) {
	if len(c.last) == keptLines {
		c.last = c.last[1:]
	}
	c.last = append(c.last, line)
	if c.output != nil {
		c.output(c.job, line)
	}
}
