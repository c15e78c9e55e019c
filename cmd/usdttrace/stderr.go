// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/gousdt/gousdt/internal/terminal"
)

// messages is standard error: warnings, the summary, and while something takes
// long what it is.
type messages struct {
	file       *os.File
	isTerminal bool

	mu       sync.Mutex
	progress string // what stands on the last line, "" for nothing
}

func newMessages(file *os.File) *messages {
	return &messages{file: file, isTerminal: isTerminal(file)}
}

// warn prints a line that begins with the name of the command. What came from
// files and processes cannot drive the terminal.
func (m *messages) warn(format string, args ...any) {
	m.print("usdttrace: " + terminal.Clean(fmt.Sprintf(format, args...)) + "\n")
}

// print prints text that is fit for a terminal.
func (m *messages) print(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// Nobody is left to be told of an error.
	fmt.Fprint(m.file, m.erased()+text+m.progress)
}

const eraseLine = "\r\x1b[K"

func (m *messages) erased() string {
	if m.progress == "" {
		return ""
	}
	return eraseLine
}

func (m *messages) show(progress string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Fprint(m.file, m.erased()+progress)
	m.progress = progress
}

// patience is how long something takes before a person wonders.
const patience = 300 * time.Millisecond

// during shows what is going on, if that takes long and somebody looks at a
// terminal, until the function returned is called.
func (m *messages) during(format string, args ...any) (done func()) {
	if !m.isTerminal {
		return func() {}
	}
	text := terminal.Clean(fmt.Sprintf(format, args...))
	start := time.Now()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticks := time.NewTicker(patience)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				m.show(fmt.Sprintf("%s %.1f s", text, time.Since(start).Seconds()))
			case <-stop:
				m.show("")
				return
			}
		}
	}()
	var once sync.Once
	return func() {
		once.Do(func() { close(stop) })
		<-stopped
	}
}

// isTerminal tells whether a file is one on which lines can be erased.
func isTerminal(file *os.File) bool {
	return isATTY(file) && os.Getenv("TERM") != "dumb"
}
