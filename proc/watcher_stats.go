// SPDX-License-Identifier: BSD-2-Clause

package proc

// Stats are numbers of a watcher since it was made.
type Stats struct {
	// Processes is how many there were in the last pass, threads of the kernel
	// included; Wanted how many of them the filter lets through, Denied how
	// many could not be looked into.
	Processes, Wanted, Denied int
	// Pairs and Files are how many there are now.
	Pairs, Files int
	// Passes counts the looks at all processes, Syncs those at single ones.
	Passes, Syncs uint64
	// Checked is how often the mappings of a process were compared with those
	// known, Read how often they were read in full. All other processes were
	// found unchanged by one read of their stat.
	Checked, Read uint64
	// KernelEvents tells whether Run gets records from the kernel; if not,
	// EventsError says why (nil before Run).
	KernelEvents bool
	EventsError  error
	// Records counts what the kernel told, Lost how often it had more to tell
	// than fitted, which was followed by a pass.
	Records, Lost uint64
}

// Stats returns the numbers of the watcher.
func (w *Watcher) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	stats := w.stats
	stats.Files = len(w.files)
	for _, p := range w.processes {
		stats.Pairs += len(p.pairs)
		if p.wanted {
			stats.Wanted++
		}
		if p.denied {
			stats.Denied++
		}
	}
	stats.Processes = len(w.processes)
	return stats
}
