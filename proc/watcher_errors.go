// SPDX-License-Identifier: BSD-2-Clause

package proc

import "errors"

// deny notes that a process cannot be scanned. Without access to it nothing is
// known of its pairs, so that it has none. Other errors are expected to pass.
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

// fail reports an error of a process, or of a file in this process, unless it
// was reported at the last scan.
func (w *Watcher) fail(p *watched, before map[string]string, path string, err error) {
	w.scan.errors = append(w.scan.errors, err)
	if p.failures == nil {
		p.failures = make(map[string]string)
	}
	p.failures[path] = err.Error()
	if before[path] != err.Error() {
		w.scan.changes.Errors = append(w.scan.changes.Errors, err)
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
	w.scan.errors = append(w.scan.errors, err)
	if w.reported[m.id] {
		return
	}
	if len(w.reported) >= maxReportedFiles {
		clear(w.reported)
	}
	w.reported[m.id] = true
	w.scan.changes.Errors = append(w.scan.changes.Errors, err)
}
