// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// buildPeer builds a file of build and returns its path. The error is one line.
// The lock keeps another run from starting a half-written file.
func buildPeer(name string) (string, error) {
	cmd := exec.Command("flock", "peers", "make", "-s", "-C", "peers", "../build/"+name)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s cannot be built (%s)", name, why(string(out), err))
	}
	return filepath.Join("build", name), nil
}

var sign = regexp.MustCompile(`(?m)^.*(error:|cannot find|not found|undefined reference).*$`)

// why picks the line that says what is wrong.
func why(output string, err error) string {
	return cmp.Or(strings.TrimSpace(sign.FindString(output)), err.Error())
}

// A peer is a running program that answers commands, one line each.
type peer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startPeer builds and starts a program of peers.
func startPeer(name string) (*peer, error) {
	path, err := buildPeer(name)
	if err != nil {
		return nil, err
	}
	return startCommand(exec.Command(path))
}

// startCommand starts any program that speaks their language.
func startCommand(cmd *exec.Cmd) (*peer, error) {
	p := &peer{cmd: cmd}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, cmd.Start()
}

// PID returns the process ID.
func (p *peer) PID() int { return p.cmd.Process.Pid }

// Line returns the next line that the program prints.
func (p *peer) Line() (string, error) {
	line, err := p.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s has ended: %w", filepath.Base(p.cmd.Path), err)
	}
	return strings.TrimSpace(line), nil
}

// Ask sends a command and returns the words of the answer after "ok".
func (p *peer) Ask(words ...any) ([]string, error) {
	command := make([]string, len(words))
	for i, word := range words {
		command[i] = fmt.Sprint(word)
	}
	if _, err := fmt.Fprintln(p.in, strings.Join(command, "\t")); err != nil {
		return nil, fmt.Errorf("%s has ended: %w", filepath.Base(p.cmd.Path), err)
	}
	line, err := p.Line()
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(line)
	if len(fields) == 0 || fields[0] != "ok" {
		return nil, errors.New(strings.TrimPrefix(line, "error "))
	}
	return fields[1:], nil
}

// Number is Ask for a command whose answer begins with a number.
func (p *peer) Number(words ...any) (number float64, err error) {
	err = p.Scan(words, &number)
	return number, err
}

// Scan is Ask for a command whose answer begins with some values.
func (p *peer) Scan(words []any, values ...any) error {
	answer, err := p.Ask(words...)
	if err == nil {
		_, err = fmt.Sscan(strings.Join(answer, " "), values...)
	}
	return err
}

// endPatience is how long a program may take to end. Some wait for the kernel
// to detach a hundred probes.
const endPatience = 2 * time.Minute

// Close ends the program by ending its input, and waits for it.
func (p *peer) Close() error {
	p.in.Close()
	kill := time.AfterFunc(endPatience, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	io.Copy(io.Discard, p.out)
	return p.cmd.Wait()
}

// Interrupt ends a program that does not read its input, and waits for it.
func (p *peer) Interrupt() error {
	var err error
	ended := make(chan struct{})
	go func() {
		err = p.Close()
		close(ended)
	}()
	interrupt(p.cmd.Process, ended)
	return err
}

// interrupt interrupts a program until it has ended, and kills it if it does
// not. Once is not enough: bpftrace 0.17 looks for an interrupt only where one
// ends its waiting for events, so it misses one that comes while it prints
// them.
func interrupt(process *os.Process, ended <-chan struct{}) {
	kill := time.AfterFunc(endPatience, func() { process.Kill() })
	defer kill.Stop()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		process.Signal(os.Interrupt)
		select {
		case <-ended:
			return
		case <-again.C:
		}
	}
}
