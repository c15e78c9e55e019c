// SPDX-License-Identifier: BSD-2-Clause

package proc

// WatcherStats are numbers of a [Watcher].
type WatcherStats struct {
	// Processes is how many there were in the last pass, threads of the kernel
	// included. Wanted is how many of them the filter lets through, Denied how
	// many could not be scanned for lack of privilege.
	Processes, Wanted, Denied int
	// Blocked is how many processes are set aside because they, or files that
	// they map, do not answer. Postponed is how many are to be scanned later:
	// they change so often that it would take too much of the time, or others
	// of the same container or user do, or are blocked.
	Blocked, Postponed int
	// ProcessFiles is how many [Watcher.ProcessFiles] returns, and Files how
	// many different files these are.
	ProcessFiles, Files int
	// Passes counts the scans of all processes.
	Passes uint64
	// Lost counts how often the kernel had more to report than its buffers
	// hold. Each was followed by a pass.
	Lost uint64
	// EventsError says why the kernel does not report what happens to
	// processes, so that passes do all the work: because Run has not been
	// called, for example. It is nil if the kernel does.
	EventsError error
}

// Stats returns the numbers of the watcher.
func (w *Watcher) Stats() WatcherStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	stats := w.stats
	stats.Files = len(w.files)
	for _, p := range w.processes {
		stats.ProcessFiles += len(p.pairs)
		if p.wanted {
			stats.Wanted++
		}
		switch {
		case p.blocked != nil:
			stats.Blocked++
		case p.due:
			stats.Postponed++
		}
		if p.denied {
			stats.Denied++
		}
	}
	stats.Processes = len(w.processes)
	return stats
}
