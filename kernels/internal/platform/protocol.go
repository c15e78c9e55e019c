// SPDX-License-Identifier: BSD-2-Clause

package platform

import (
	"encoding/json"
	"strings"
	"time"
)

// PlanFile is where the guest finds its plan, as JSON.
const PlanFile = "/gousdt/plan.json"

// The host and the guest talk by a plan, which is a file in the guest, and by
// marker lines on the console, the only way out of a guest that has neither
// disk nor network. A marker line carries a word that the host made up for this
// run, so that the output of a test cannot be taken for one.

// Plan is what a guest is to do.
type Plan struct {
	// Token is the word in this run's marker lines. It has no blanks.
	Token string
	// Modules are files with modules of the kernel, which are loaded first, in
	// this order.
	Modules []string
	// Jobs run in this order. One that fails does not stop the others.
	Jobs []Job
}

// Job is one program to run.
type Job struct {
	// Path is the program, Dir its working directory.
	Path, Dir string
	// Args are its arguments, without the program's own name.
	Args []string
	// Env is its whole environment.
	Env []string
	// Timeout is how long it may run. The guest then asks it to quit, which
	// makes a Go program print its stacks, and kills it a little later.
	Timeout time.Duration
}

// Event is what a marker line says.
type Event struct {
	Kind Kind
	// Job is the number of the job in the plan, for Started and Exited.
	Job int
	// Status is the job's exit status; 128 and the signal's number where a
	// signal ended it.
	Status int
	// Text is the kernel's release for Booted, the reason for Failed.
	Text string
}

// Kind says what happened.
type Kind string

const (
	// Booted is the first event: all file systems are mounted.
	Booted Kind = "booted"
	// Started comes before the first line of a job's output.
	Started Kind = "started"
	// Exited comes after the last one.
	Exited Kind = "exited"
	// Failed says that the guest could not do what it was asked.
	Failed Kind = "failed"
	// Done is the last event: the guest turns itself off.
	Done Kind = "done"
)

const prefix = "@gousdt-guest "

// Marker formats an event as a line, without the line's end.
func Marker(token string, e Event) string {
	text, _ := json.Marshal(e) // which has nothing that could not be written
	return prefix + token + " " + string(text)
}

// ParseMarker finds a marker in a line of the console. A kernel message may
// stand before it, on the same line: the text before the marker is returned
// as well.
func ParseMarker(token, line string) (before string, e Event, ok bool) {
	before, text, found := strings.Cut(line, prefix+token+" ")
	if !found || json.Unmarshal([]byte(text), &e) != nil {
		return line, Event{}, false
	}
	return before, e, true
}
