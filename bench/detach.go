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
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/usdt"
)

const (
	// detachedLinks is how many attachments are closed together.
	detachedLinks = 100

	// gracePeriods is how many links that are closed together wait for, where a
	// single one waits for one: while the first one's runs, the others come too
	// late for it and share the next.
	gracePeriods = 2
)

func detachRows() []row {
	return []row{
		{
			name:   "detach/together",
			title:  fmt.Sprintf("close %d attachments (uprobe_multi links)", detachedLinks),
			rounds: 15,
			goals: []goal{
				{Text: closeTogetherText, Of: oursTogether, Than: rawTogether, Times: 1.5},
				{
					Text:  closeTogetherText,
					Of:    oursTogether,
					Than:  byRawLink,
					Times: 1.5 * gracePeriods,
					Floor: together,
					Note:  "1.5 × one link's close for each of two grace periods, about 100 ms in all",
				},
			},
			prepare: (*env).closeLinks,
		},
		{
			name:   "detach/single",
			title:  "close one attachment to 100 sites of one probe (10 in a quick run) by perf events, for kernels without uprobe_multi links",
			rounds: 2,
			goals: []goal{{
				Text:  "close one attachment to 100 sites by perf events",
				Of:    ours,
				Than:  rawEventGroup,
				Times: 1.5,
				Note:  "they share one, if tracefs is mounted",
			}},
			prepare: func(e *env) ([]contestant, error) {
				return e.closeEvents(e.pick(100, 10, 2))
			},
		},
	}
}

const (
	oursTogether = "gousdt, together"
	rawTogether  = "raw links, together"

	rawEventGroup = "one raw perf event of all sites, by tracefs"
)

// together is what the kernel takes to close as many links.
var together = &floor{Name: rawTogether, Of: []string{rawTogether}}

var closeTogetherText = fmt.Sprintf("close %d attachments together", detachedLinks)

func (e *env) closeLinks() ([]contestant, error) {
	count := e.pick(detachedLinks, detachedLinks, 3)
	path, err := e.synthetic(syntheticFile{Sites: count, Probes: count})
	if err != nil {
		return nil, err
	}
	t, err := e.tracer(ownObject, usdt.ManagerOptions{}, 0)
	if err != nil {
		return nil, err
	}
	raw, err := prepareRaw(path)
	if err != nil {
		return nil, err
	}
	var each []*rawSites
	for i := range raw.offsets {
		each = append(each,
			&rawSites{path: raw.path, offsets: raw.offsets[i : i+1], cookies: raw.cookies[i : i+1]})
	}
	attach := func() ([]*usdt.Link, error) {
		var links []*usdt.Link
		for i := range count {
			lnk, err := t.Attach(t.programs["add3"], usdt.Target{Path: path}, nil,
				elfnote.Exact(syntheticProvider, syntheticProbe(i)))
			if err != nil {
				sys.CloseTogether(links)
				return nil, err
			}
			links = append(links, lnk)
		}
		return links, nil
	}
	closing := func(close func(links []*usdt.Link) error) func(int) (float64, error) {
		return func(int) (float64, error) {
			links, err := attach()
			if err != nil {
				return 0, err
			}
			return timed(func() error { return close(links) })
		}
	}
	return []contestant{
		{Name: oursTogether, Once: true, Measure: closing(sys.CloseTogether[*usdt.Link])},
		{Name: byRawLink, Once: true, Measure: func(int) (float64, error) {
			fd, err := each[0].linkMulti(t.programs["add3"])
			if err != nil {
				return 0, err
			}
			return timed(func() error { return closeTogether([]int{fd}, 1) })
		}},
		{Name: rawTogether, Once: true, Measure: func(int) (float64, error) {
			undo, err := rawLinks(t.programs["add3"], each)()
			if err != nil {
				return 0, err
			}
			return timed(undo)
		}},
	}, nil
}

func (e *env) closeEvents(sites int) ([]contestant, error) {
	path, err := e.synthetic(syntheticFile{Sites: sites, Specs: 1})
	if err != nil {
		return nil, err
	}
	t, err := e.tracer(ownObject, usdt.ManagerOptions{Mode: usdt.ModeSingle}, 0)
	if err != nil {
		return nil, err
	}
	raw, err := prepareRaw(path)
	if err != nil {
		return nil, err
	}
	contestants := []contestant{
		{Name: ours, Once: true, Measure: func(int) (float64, error) {
			lnk, err := t.Attach(t.programs["add3"], usdt.Target{Path: path}, nil,
				elfnote.Exact(syntheticProvider, syntheticProbe(0)))
			if err != nil {
				return 0, err
			}
			return timed(lnk.Close)
		}},
		{Name: rawEventGroup, Once: true, Missing: tracefsMissing(), Measure: func(int) (float64, error) {
			closeGroup, err := raw.openGroup(t.programs["add3"])
			if err != nil {
				return 0, err
			}
			return timed(closeGroup)
		}},
	}
	// The kernel detaches one perf event after the other, each for a tenth of a
	// second.
	for i := range contestants {
		contestants[i].MaxRounds = e.pick(2, 1, 1)
	}
	p, mode, err := e.libbpf()
	switch {
	case err != nil:
		return append(contestants, missing(byLibbpf, err)), nil
	case mode != modePerf:
		return append(contestants,
			missing(byLibbpf, &unableError{"this version does not use perf events here"})), nil
	}
	byPeer := contestant{Name: byLibbpf, Once: true, MaxRounds: 1}
	byPeer.Measure = func(int) (float64, error) {
		if _, err := p.Ask("attach", "add3", path, syntheticProvider, syntheticProbe(0)); err != nil {
			return 0, err
		}
		return p.Number("close")
	}
	return append(contestants, byPeer), nil
}

const (
	tracefs = "/sys/kernel/tracing"
	// traceGroup is the first part of the names of our events there, which are
	// for the whole machine.
	traceGroup = "gousdt_bench"
)

// privateMounts marks the process that has a mount namespace of its own.
const privateMounts = "GOUSDT_BENCH_PRIVATE_MOUNTS"

// withTracefs runs this program again, with tracefs mounted in a mount
// namespace of its own, if it is not mounted: sites share perf events by it. It
// reports whether it did.
func withTracefs() (again bool, err error) {
	if os.Getenv(privateMounts) != "" {
		if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return false, fmt.Errorf("making mounts private: %w", err)
		}
		_ = unix.Mount("none", tracefs, "tracefs", 0, "") // tracefsMissing says so
		return false, nil
	}
	if tracefsMissing() == nil {
		return false, nil
	}
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), privateMounts+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return true, cmd.Run()
}

// tracefsMissing says so where the machine has no tracefs mounted.
func tracefsMissing() error {
	if _, err := os.Stat(filepath.Join(tracefs, "uprobe_events")); err != nil {
		return &unableError{fmt.Sprintf("no tracefs is mounted: %v", err)}
	}
	return nil
}

// openGroup makes one event of all sites, by name in tracefs, and one perf
// event of that, with the program. So it is closed by one wait. All sites have
// one cookie then, and the name outlives a process that is killed: a library
// cannot do it in general.
func (s *rawSites) openGroup(prog *ebpf.Program) (close func() error, err error) {
	name := fmt.Sprintf("%s/sites_%d", traceGroup, os.Getpid())
	var definition strings.Builder
	for _, offset := range s.offsets {
		fmt.Fprintf(&definition, "p:%s %s:%#x\n", name, unix.BytePtrToString(s.path), offset)
	}
	if err := writeTracefs(definition.String()); err != nil {
		return nil, err
	}
	remove := func() error { return writeTracefs("-:" + name + "\n") }
	text, err := os.ReadFile(filepath.Join(tracefs, "events", name, "id"))
	if err != nil {
		remove()
		return nil, err
	}
	id, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		remove()
		return nil, err
	}
	fd, err := openEvent(&unix.PerfEventAttr{
		Type: unix.PERF_TYPE_TRACEPOINT, Size: unix.PERF_ATTR_SIZE_VER1, Config: id,
	}, prog)
	if err != nil {
		remove()
		return nil, err
	}
	return func() error {
		if err := unix.Close(fd); err != nil {
			return err
		}
		return remove()
	}, nil
}

func writeTracefs(line string) error {
	// To truncate the file would remove the events of everybody.
	events, err := os.OpenFile(filepath.Join(tracefs, "uprobe_events"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer events.Close()
	_, err = events.WriteString(line)
	return err
}
