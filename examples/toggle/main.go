// SPDX-License-Identifier: BSD-2-Clause

// Command toggle counts probes that are turned on and off while it runs, as
// somebody wants to know more about a program, or enough. A probe that is off
// costs the program a nop.
//
//	toggle PATH
//
// It reads commands from the standard input:
//
//	on PROVIDER:NAME    counts the probes that match, too
//	off PROVIDER:NAME   counts them no more
//	hits                prints how often they were passed
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/cilium/ebpf/rlimit"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/usdt"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64,s390x,riscv64 bpf toggle.bpf.c -- -Wall -Wextra -Werror -I../.. -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu -idirafter /usr/include/s390x-linux-gnu

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: toggle PATH")
	}
	if err := run(os.Stdin, os.Stdout, usdt.Target{Path: os.Args[1]}); err != nil {
		log.Fatal(err)
	}
}

// run executes commands until there are no more.
func run(in io.Reader, out io.Writer, target usdt.Target) error {
	if err := rlimit.RemoveMemlock(); err != nil { // needed before 5.11
		return err
	}
	spec, err := loadBpf()
	if err != nil {
		return err
	}
	mgr, err := usdt.NewManager(spec, nil)
	if err != nil {
		return err
	}
	defer mgr.Close()
	var objs bpfObjects
	if err := mgr.LoadAndAssign(&objs, nil); err != nil {
		return err
	}
	defer objs.Close()

	// The program stays loaded, so that turning a probe on is only to attach
	// it.
	t := &toggle{mgr: mgr, objs: &objs, target: target, links: make(map[string]*usdt.Link)}
	for commands := bufio.NewScanner(in); commands.Scan(); {
		answer, err := t.execute(commands.Text())
		if err != nil {
			answer = "error: " + err.Error()
		}
		fmt.Fprintln(out, answer)
	}
	return nil
}

type toggle struct {
	mgr    *usdt.Manager
	objs   *bpfObjects
	target usdt.Target
	links  map[string]*usdt.Link // of what is on, by pattern
}

func (t *toggle) execute(command string) (answer string, err error) {
	verb, probe, _ := strings.Cut(command, " ")
	lnk := t.links[probe]
	switch {
	case verb == "on" && lnk == nil:
		pattern, err := elfnote.ParsePattern(probe)
		if err != nil {
			return "", err
		}
		if lnk, err = t.mgr.Attach(t.objs.OnHit, t.target, nil, pattern); err != nil {
			return "", err
		}
		t.links[probe] = lnk
		return fmt.Sprintf("on: %d sites", lnk.Selection().Len()), nil
	case verb == "off" && lnk != nil:
		delete(t.links, probe)
		return "off", lnk.Close() // when it returns, no more hits come
	case verb == "hits":
		var hits uint64
		err := t.objs.Hits.Get(&hits)
		return fmt.Sprint(hits, " hits"), err
	default:
		return "", fmt.Errorf("%q is not possible now", command)
	}
}
