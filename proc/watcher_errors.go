// SPDX-License-Identifier: BSD-2-Clause

package proc

import "errors"

// deny notes that a process cannot be looked into. Without access to it nothing
// is known of its pairs, so that it has none; other trouble is expected to
// pass.
func (w *Watcher) deny(p *watched, err error) {
	if errors.Is(err, ErrAccess) {
		w.setPairs(p, nil)
	}
	before := p.failures
	p.failures = nil
	p.denied = errors.Is(err, ErrAccess)
	p.retry = !p.denied
	w.fail(p, before, "", err)
}

// fail reports an error of a process, or of a file that only this process is
// known to have trouble with, unless it was reported at the last look.
func (w *Watcher) fail(p *watched, before map[string]string, path string, err error) {
	w.look.errors = append(w.look.errors, err)
	if p.failures == nil {
		p.failures = make(map[string]string)
	}
	p.failures[path] = err.Error()
	if before[path] != err.Error() {
		w.look.changes.Errors = append(w.look.changes.Errors, err)
	}
}

// failFile reports an error of a file that a process maps. What is wrong with
// the contents of the file is reported for the first process that maps it,
// instead of for the thousands.
func (w *Watcher) failFile(p *watched, before map[string]string, m *MappedFile, err error) {
	var e *Error
	if !errors.As(err, &e) || e.Op != opReadProbes {
		w.fail(p, before, m.rawPath, err)
		return
	}
	w.look.errors = append(w.look.errors, err)
	if w.reported[m.identity] {
		return
	}
	if len(w.reported) >= maxReportedFiles {
		clear(w.reported)
	}
	w.reported[m.identity] = true
	w.look.changes.Errors = append(w.look.changes.Errors, err)
}
