// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// comparison is an argument that the starts and ends of a pair have in common
// if they belong together, and what was seen of it.
type comparison struct {
	pair  string
	match string // the argument, "" if there is none
	isID  bool   // its name says that it tells calls apart

	stacks string // the kind of those that threads may run, see [defs.Stacks]

	start, done int // 1 more than its number there; 0: it is not compared
	width       int // see bpfgen.Ends

	past, now seen // of threads that have ended, and of the others
}

type seen struct {
	ended, differ uint64 // calls, and those in which the argument differed
	many          bool   // so many calls of a thread have ended that no more were looked at
	mixed         int    // threads of which no call is measured any more
	last          []differing
}

// differing is a call in which the argument differed. Values are a process's
// own.
type differing struct {
	bpfgen.Differing
	process int
}

const maxDiffering = 1 << 12

func (s *seen) add(process int, c bpfgen.Compared) {
	s.ended += uint64(c.Ended)
	s.differ += uint64(c.Differ)
	s.many = s.many || c.Ended >= bpfgen.MaxCompared
	if c.Mixed {
		s.mixed++
	}
	for _, call := range c.Last[:min(len(c.Last), maxDiffering-len(s.last))] {
		s.last = append(s.last, differing{call, process})
	}
}

// others returns how many ends had the value of another call's start before
// them, in any thread, and in how many of these no other call had it.
func (s *seen) others() (others, unique int) {
	type value struct {
		process int
		of      uint32
	}
	starts, ends := make(map[value][]uint64), make(map[value]int) // when they began; how many
	for _, call := range s.last {
		start, end := value{call.process, call.Start}, value{call.process, call.End}
		starts[start] = append(starts[start], call.Began)
		ends[end]++
	}
	slices.SortFunc(s.last, func(a, b differing) int { return cmp.Compare(a.Ended, b.Ended) })
	for _, call := range s.last {
		end := value{call.process, call.End}
		of := starts[end]
		i := slices.IndexFunc(of, func(began uint64) bool { return began < call.Ended })
		if i < 0 {
			continue
		}
		if others++; len(of) == 1 && ends[end] == 1 {
			unique++
		}
		starts[end] = slices.Delete(of, i, i+1)
	}
	return others, unique
}

// isWrong reports whether starts and ends do not belong together. A value that
// one call starts with and another ends with tells that of any share of the
// calls; values that come again, or a name, of nearly all.
func (c *comparison) isWrong(s *seen) bool {
	others, unique := s.others()
	some, most := max(2, len(s.last)/3), s.differ >= few && s.differ >= s.ended-s.ended/10
	return unique >= some || others >= some && (most || c.isID) || most && c.isID
}

func (o *openCalls) compare(pair uint32, c comparison) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.pair == "" || o.compared[pair] != nil {
		return
	}
	if o.compared == nil {
		o.compared = make(map[uint32]*comparison)
	}
	o.compared[pair] = &c
}

// few is how many calls tell nothing: those that go on at the start, and others
// at the end.
const few = 8

// addTo adds the calls that exits have ended, and what may be wrong with the
// times of calls, which the other losses show, too.
func (o *openCalls) addTo(l *Losses) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l.Killed, l.Exited = o.killed, o.exited
	l.Events += o.unread
	l.NoTables = strings.Join(o.noTables, ", ")
	l.Mismatch, l.Match = o.mismatch(l)
}

func (o *openCalls) mismatch(l *Losses) (text, match string) {
	var worst *comparison
	var all seen
	for _, number := range slices.Sorted(maps.Keys(o.compared)) {
		c := o.compared[number]
		of := seen{c.past.ended + c.now.ended, c.past.differ + c.now.differ, c.past.many || c.now.many,
			c.past.mixed + c.now.mixed, slices.Concat(c.past.last, c.now.last)}
		if of.mixed > 0 && c.stacks != "" {
			return fmt.Sprintf("%s: %d of the threads run %s, which change threads while calls go on: "+
				"from then on calls of these threads are not measured",
				c.pair, of.mixed, strings.ReplaceAll(c.stacks, "-", " ")), ""
		}
		if of.mixed > 0 {
			return fmt.Sprintf("%s: functions do not end in the reverse order of their starts in %d of the threads, "+
				"as with greenlets: times from before that was seen may be wrong, and calls after it are not measured",
				c.pair, of.mixed), ""
		}
		all.ended, all.many = all.ended+of.ended, all.many || of.many
		if of.differ > all.differ && c.isWrong(&of) {
			worst, all.differ = c, of.differ
			text = fmt.Sprintf("%s: start and end differ in %s in %d of %d calls", c.pair, c.match, of.differ,
				of.ended)
		}
		match = cmp.Or(match, c.match)
	}
	switch {
	case worst != nil:
		return text, worst.match
	case len(o.compared) > 0 && endElsewhere(l, &all):
		return "about as many starts have no end as ends have no start: calls may end in another process " +
			"than they start in, where nothing matches them, or on another thread", match
	}
	return "", ""
}

// endElsewhere reports whether most calls seem to end on other threads: nearly
// as many starts lack an end as ends lack a start. If none was measured, fewer
// are enough. Calls that were left have a frame, which another thread's end
// cannot have: if they are most, these are coroutines.
func endElsewhere(l *Losses, all *seen) bool {
	starts, ends := l.Replaced+l.Killed+l.Exited+l.Left+l.Unfinished, l.Unmatched
	less, more := min(starts, ends), max(starts, ends)
	return !all.many && less > all.ended && (less > few || all.ended == 0 && less > few/2) &&
		more-less <= more/8 && l.Left <= starts/2
}

// ids are names of arguments that tell calls apart.
var ids = []string{"id", "conn", "connection", "connection_id", "coroutine", "request", "request_id", "req"}

// bothOf returns what the starts and ends of a pair have in common, by the
// arguments of their sites. If the pair is not matched by the thread it is the
// width of what matches it.
func bothOf(
	definitions *defs.Definitions, args map[[2]string][][]argspec.Arg, pair *defs.Pair,
	match *bpfgen.Match,
) comparison {
	start, done := args[nameOf(&pair.Start)], args[nameOf(&pair.Done)]
	var all comparison
	if !match.ByThread() {
		all.width = width(
			values(definitions, &pair.Start, start, match.Start),
			values(definitions, &pair.Done, done, match.Done))
		return all
	}
	all.pair = pair.String()
	ofStart, ofDone := named(definitions, &pair.Start, start), named(definitions, &pair.Done, done)
	for i, arg := range ofStart {
		j := i
		if arg.Name != "" {
			j = slices.IndexFunc(ofDone,
				func(other defs.Argument) bool { return other.Name == arg.Name })
		}
		isID := slices.Contains(ids, strings.ToLower(arg.Name))
		if j < 0 || j >= len(ofDone) || ofDone[j].Name != arg.Name || arg.IsText || arg.Value != "" ||
			!comparesAll(start, i) || !comparesAll(done, j) || all.match != "" && (all.isID || !isID) {
			continue
		}
		all.match, all.isID, all.start, all.done = cmp.Or(arg.Name, fmt.Sprintf("arg%d", i)), isID, i+1, j+1
	}
	return all
}

func named(
	definitions *defs.Definitions, probe *defs.FileProbe, sites [][]argspec.Arg,
) []defs.Argument {
	if len(sites) == 0 {
		return nil
	}
	if definitions != nil {
		if of, ok := definitions.Probe(probe.Provider, probe.Name, len(sites[0])); ok {
			return of.Arguments
		}
	}
	return make([]defs.Argument, len(sites[0]))
}

// comparesAll reports whether all sites have an argument whose values can tell
// calls apart.
func comparesAll(sites [][]argspec.Arg, i int) bool {
	constant := 0
	return !slices.ContainsFunc(sites, func(args []argspec.Arg) bool {
		if i < len(args) && args[i].Kind == argspec.Constant {
			constant++
		}
		return constant == len(sites) || i >= len(args) || args[i].Err != nil || args[i].Float ||
			args[i].Size != 4 && args[i].Size != 8
	})
}

// values returns the arguments that a term is at the sites of a probe.
func values(
	definitions *defs.Definitions, probe *defs.FileProbe, sites [][]argspec.Arg, t expr.Term,
) (all []argspec.Arg) {
	for i, arg := range named(definitions, probe, sites) {
		isTerm := t.Name == arg.Name
		if t.Name == "" {
			isTerm = t.Index == i
		}
		if !isTerm || t.Source != expr.Argument || t.HasMask {
			continue
		}
		for _, args := range sites {
			if i < len(args) {
				all = append(all, args[i])
			}
		}
	}
	return all
}

// width returns the least size of some arguments if they are integers that
// differ in their size or their sign, else 0: numbers that are equal may have
// different upper bytes then.
func width(start, done []argspec.Arg) (least int) {
	all := slices.Concat(start, done)
	differ := false
	for i := range all {
		if all[i].Err != nil || all[i].Float {
			return 0
		}
		least = min(cmp.Or(least, all[i].Size), all[i].Size)
		differ = differ || all[i].Size != all[0].Size || all[i].Signed != all[0].Signed
	}
	if !differ {
		return 0
	}
	return least
}

func sameArguments(a, b []argspec.Arg) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
