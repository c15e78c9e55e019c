// SPDX-License-Identifier: BSD-2-Clause

package watch

import (
	"errors"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
)

// Program is the part of a watch that keeps a program attached to the probes
// that match any of the patterns, or to all probes if there is no pattern. The
// program belongs to the Manager's collection. Its name in the kernel is that
// of the part.
//
// The selection of each link has the process that is attached and the path of
// the file, as that process, or the first one found with it, sees it. The Watch
// closes the links.
func Program(
	mgr *usdt.Manager, program *ebpf.Program, patterns ...elfnote.Pattern,
) Part[*usdt.Link] {
	name := ""
	if program != nil { // else Begin fails
		if info, err := program.Info(); err == nil {
			name = info.Name
		}
	}
	return Part[*usdt.Link]{
		Patterns: patterns,
		Name:     name,
		Attach: func(
			_ *proc.ProcessFile, sites *usdt.Selection, opts *usdt.AttachOptions,
		) (*usdt.Link, error) {
			return mgr.Attach(program, usdt.Target{Selection: sites}, opts)
		},
		Detach: sys.CloseTogether[*usdt.Link],
		Descriptors: func(l *usdt.Link) int {
			links, _ := l.Links() // none of perf events, which take two each with their BPF links
			n := len(links) + 2*l.PerfEvents()
			if mgr.Mode() == usdt.ModeSingleIPMap {
				n++ // the array by which the program is called
			}
			return n
		},
		Begin: func(w *Watch) (end func(), err error) {
			if mgr == nil {
				return nil, errors.New("there is no Manager to attach with: see usdt.NewManager")
			}
			if err := mgr.Check(program); err != nil {
				return nil, err
			}
			closed := sys.ClosedError("manager")
			select {
			case <-mgr.Done():
				return nil, closed
			default:
			}
			ended := make(chan struct{})
			go func() {
				select {
				case <-mgr.Done():
					w.mu.Lock()
					w.reason = closed
					w.mu.Unlock()
					w.Stop()
				case <-ended:
				}
			}()
			return func() { close(ended) }, nil
		},
	}
}
