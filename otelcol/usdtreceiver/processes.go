// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"context"
	"io"
	"maps"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/usdt/proc"
)

const (
	// keepGone is how long a process that has gone is known, for the events and
	// counts that are read later.
	keepGone = 2 * time.Minute

	// maxGone bounds how many processes that have gone are known, and so the
	// memory that a program takes which forks all the time.
	maxGone = 1 << 14
)

// process has the facts about a process that were read when it was found.
type process struct {
	proc.Process
	executable string // path as the process sees it, or ""
	cgroup     string // path in the hierarchy of version 2, or ""
	container  proc.Container
	service    map[string]string // resource attributes from its environment
	stack      uint64            // where that of the program starts, which exec changes

	pairs  int       // how many files with wanted probes it maps
	gone   time.Time // since when it maps none; zero if it maps one
	groups []uint64  // control groups that it has resources of
}

// name returns the name of the process's program or, if that cannot be read, of
// its first thread.
func (p *process) name() string {
	if p.executable != "" {
		return path.Base(strings.TrimSuffix(p.executable, deleted))
	}
	return p.Command
}

// isSame reports whether two programs of a process have the same resource.
func (p *process) isSame(other *process) bool {
	path := func(p *process) string { return strings.TrimSuffix(p.executable, deleted) }
	return path(p) == path(other) && maps.Equal(p.service, other.service)
}

// deleted ends the path of a program that was deleted or replaced.
const deleted = " (deleted)"

// processes has the processes that map files with wanted probes, as the watch
// reports them, and their resources.
type processes struct {
	kind    ResourceKind
	fs      procfs.FS
	cgroups *proc.Cgroups // nil if there is no hierarchy of version 2
	boot    string

	symbolizer *stack.Symbolizer // nil without profiles
	texts      procwatch.Texts

	mu        sync.Mutex
	byPID     map[int]*process             // the latest of each
	services  map[string]map[*process]bool // those of byPID that have one, by groupKeys
	gone      []*process                   // in the order in which they went
	running   int
	seen      uint64 // how often a process has appeared
	resources map[resourceID]*resource
}

// resourceID identifies a resource: a process, or else a control group.
type resourceID struct {
	process *process // nil for a control group
	group   uint64
}

func newProcesses(kind ResourceKind, fs procfs.FS, cgroups *proc.Cgroups) *processes {
	return &processes{
		kind: kind, fs: fs, cgroups: cgroups, boot: bootID(fs),
		byPID: make(map[int]*process), services: make(map[string]map[*process]bool),
		resources: make(map[resourceID]*resource),
	}
}

// changed is called by the watch with what has come and gone, by one goroutine
// at a time. Nothing else changes byPID.
func (ps *processes) changed(appeared, disappeared []*proc.ProcessFile) {
	for _, pair := range appeared {
		ps.appeared(pair.Process)
		ps.texts.Touch(context.Background(), ps.fs, pair.Process.PID, pair.Path)
		if ps.symbolizer != nil {
			ps.symbolizer.Remember(pair.Process.PID)
		}
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, pair := range disappeared {
		p := ps.byPID[pair.Process.PID]
		if p != nil && p.StartTime == pair.Process.StartTime && p.gone.IsZero() {
			if p.pairs--; p.pairs == 0 {
				ps.leave(p)
			}
		}
	}
	// Those that have gone long ago are forgotten.
	n := 0
	for n < len(ps.gone) && (len(ps.gone)-n > maxGone || time.Since(ps.gone[n].gone) >= keepGone) {
		if p := ps.gone[n]; ps.byPID[p.PID] == p {
			ps.remove(p)
		}
		n++
	}
	ps.gone = slices.Delete(ps.gone, 0, n)
}

func (ps *processes) appeared(found proc.Process) {
	ps.mu.Lock()
	before := ps.byPID[found.PID]
	ps.mu.Unlock()
	p := before
	stat, _ := procfs.ReadStat(ps.fs.Root(), found.PID, make([]byte, procfs.MaxStat))
	executed := stat.StartStack != 0 && p != nil && p.stack != stat.StartStack
	if p == nil || p.StartTime != found.StartTime || executed {
		p = ps.read(found)
		p.stack = stat.StartStack
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	switch {
	case before == nil || before == p:
	case before.StartTime != found.StartTime:
		ps.leave(before)
	case before.isSame(p):
		before.stack = p.stack
		p = before
	case before.gone.IsZero(): // its files have yet to disappear
		p.pairs = before.pairs
		ps.leave(before)
		ps.running++
		ps.seen++
	}
	if p.pairs == 0 {
		if !p.gone.IsZero() { // it maps such a file again
			p.gone = time.Time{}
			ps.gone = slices.DeleteFunc(ps.gone, func(g *process) bool { return g == p })
		}
		ps.running++
		ps.seen++
	}
	if p.pairs++; p == before {
		return
	}
	if before != nil {
		ps.remove(before)
	}
	ps.byPID[found.PID] = p
	if len(p.service) > 0 {
		for _, key := range groupKeys(p.cgroup, p.container) {
			if ps.services[key] == nil {
				ps.services[key] = make(map[*process]bool)
			}
			ps.services[key][p] = true
		}
	}
}

// remove removes a process from byPID and services, and its resources, which
// no hit has any more. Series keep theirs.
func (ps *processes) remove(p *process) {
	delete(ps.byPID, p.PID)
	for _, group := range p.groups {
		delete(ps.resources, resourceID{p, group})
	}
	for _, key := range groupKeys(p.cgroup, p.container) {
		if delete(ps.services[key], p); len(ps.services[key]) == 0 {
			delete(ps.services, key)
		}
	}
}

// leave marks a process as gone.
func (ps *processes) leave(p *process) {
	if p.gone.IsZero() {
		p.pairs, p.gone = 0, time.Now()
		ps.gone = append(ps.gone, p)
		ps.running--
	}
}

// groupKeys returns what the processes of a control group have in common: its
// path, or its container's ID.
//
// In a cgroup namespace, such as that of a container, the kernel gives the path
// of another container relative to this one: "/../../pod/ID". The absolute path
// does not follow from it, so containers are compared by their IDs.
func groupKeys(path string, c proc.Container) (keys []string) {
	if path != "" {
		keys = append(keys, path)
	}
	if c.ID != "" {
		keys = append(keys, "container "+c.ID) // a path begins with a slash
	}
	return keys
}

// count returns how many processes there are now.
func (ps *processes) count() int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.running
}

// read reads the facts about a process. What cannot be read is empty.
func (ps *processes) read(found proc.Process) *process {
	p := &process{Process: found}
	p.executable, _ = found.Executable()
	if text, err := found.Cgroup(); err == nil {
		p.container, _ = proc.ContainerOf(text)
		p.cgroup = unifiedPath(text)
	}
	service := make(chan map[string]string, 1)
	if deadline.One(context.Background(), deadline.Memory, func() {
		service <- readService(path.Join(ps.fs.Root(), strconv.Itoa(found.PID), "environ"))
	}, nil) {
		p.service = <-service
	}
	if len(p.service) > 0 {
		return p
	}
	// A server such as PostgreSQL writes the title of a child over the
	// environment, which the child had from its parent.
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if parent := ps.byPID[found.Parent]; parent != nil && parent.executable == p.executable &&
		parent.cgroup == p.cgroup {
		p.service = parent.service
	}
	return p
}

// unifiedPath returns the path in the hierarchy of version 2 from the text of
// /proc/PID/cgroup. In a cgroup namespace the path of a process outside begins
// with "/.." for each step up. These are left out.
func unifiedPath(text string) string {
	for line := range strings.Lines(text) {
		path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		for strings.HasPrefix(path, "/../") {
			path = strings.TrimPrefix(path, "/..")
		}
		return path
	}
	return ""
}

// resourceOf returns the resource of a hit. With ByContainer it is that of the
// control group. So it is for a process that ended before the watch saw it:
// thousands of these may end in a second.
func (ps *processes) resourceOf(pid int, group uint64) *resource {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	id := resourceID{group: group}
	if ps.kind == ByProcess {
		id.process = ps.byPID[pid]
	}
	r := ps.resources[id]
	if r == nil {
		r = ps.newResource(group, id.process)
		if ps.resources[id] = r; id.process != nil {
			id.process.groups = append(id.process.groups, group)
		}
	}
	if r.process == nil && r.service == nil && r.asked != ps.seen {
		// Processes of it may be known by now. Its series that were sent keep
		// their name: under another one they would count twice.
		r.asked = ps.seen
		if service := ps.serviceOf(r); service != nil {
			r.replaced = true
			r = &resource{group: group, path: r.path, container: r.container, instance: r.instance,
				service: service}
			ps.resources[id] = r
		}
	}
	r.used = time.Now()
	return r
}

func (ps *processes) newResource(group uint64, p *process) *resource {
	r := &resource{process: p, group: group}
	if ps.cgroups != nil {
		r.path, r.isFound = ps.cgroups.Path(group)
		r.container, _ = proc.ContainerOf(r.path)
	}
	if p == nil {
		r.instance = instanceID(ps.boot, "group", group)
		r.service, r.asked = ps.serviceOf(r), ps.seen
		return r
	}
	if r.path == "" {
		r.path = p.cgroup
	}
	if r.container.ID == "" {
		r.container = p.container // where the hierarchies are of version 1
	}
	r.service = p.service
	// A process that is moved to another control group is another resource.
	r.instance = instanceID(ps.boot, "process", p.PID, p.StartTime, p.executable, group)
	return r
}

// serviceOf returns the service attributes that the environments of all known
// processes of a control group agree in. It is nil if none is known.
func (ps *processes) serviceOf(r *resource) map[string]string {
	if r.path == "" {
		return nil
	}
	var common map[string]string
	for _, key := range groupKeys(r.path, r.container) {
		for p := range ps.services[key] {
			if common == nil {
				common = maps.Clone(p.service)
			}
			for name, value := range common {
				if p.service[name] != value {
					delete(common, name)
				}
			}
			if len(common) == 0 {
				return common
			}
		}
	}
	return common
}

// hasGone reports whether the process or the control group of a resource has
// gone, or another resource has replaced it.
func (ps *processes) hasGone(r *resource) bool {
	if r == nil {
		return false
	}
	ps.mu.Lock()
	gone := r.replaced || r.process != nil && !r.process.gone.IsZero()
	ps.mu.Unlock()
	// Without cgroup v2 it is not known whether a group is there, so series
	// without hits end. A process can be moved to another group.
	return gone || (r.process == nil || r.isFound) &&
		(ps.cgroups == nil || !ps.cgroups.Exists(r.group))
}

// forget drops the resources that were not used since then and whose control
// group has gone.
func (ps *processes) forget(since time.Time) {
	old := make(map[resourceID]*resource)
	ps.mu.Lock()
	for id, r := range ps.resources {
		if r.used.Before(since) {
			old[id] = r
		}
	}
	ps.mu.Unlock()
	for id, r := range old {
		if !ps.hasGone(r) {
			continue
		}
		ps.mu.Lock()
		if ps.resources[id] == r && r.used.Before(since) {
			delete(ps.resources, id)
			if p := id.process; p != nil {
				p.groups = slices.DeleteFunc(p.groups, func(g uint64) bool { return g == id.group })
			}
		}
		ps.mu.Unlock()
	}
}

// knows reports whether the process of a hit is known: one that has gone was
// hit before that, and a later hit is of another one with its number.
func (ps *processes) knows(pid int, hit time.Time) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.byPID[pid]
	return p != nil && (p.gone.IsZero() || hit.Before(p.gone))
}

const (
	// maxEnvironment bounds what is read of a process's environment. The kernel
	// lets one have megabytes.
	maxEnvironment = 256 << 10

	// maxServiceValue bounds a value that a process chose. Names of services
	// are short.
	maxServiceValue = 256
)

// readService returns the attributes of the service from a file such as
// /proc/PID/environ.
func readService(file string) map[string]string {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, maxEnvironment))
	return serviceOf(string(text))
}

// serviceAttributes are the attributes that are taken from
// OTEL_RESOURCE_ATTRIBUTES. Others are not: a process must not say in which pod
// it is, and children inherit service.instance.id.
var serviceAttributes = []string{attributeServiceName, "service.namespace", "service.version",
	"deployment.environment.name", "deployment.environment"}

// serviceOf returns the attributes that describe the service, from the
// variables OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME. The latter takes
// precedence. It returns nil if there are none.
func serviceOf(environment string) map[string]string {
	var found map[string]string
	add := func(key, value string) {
		value = validText(value)
		if value == "" || len(value) > maxServiceValue {
			return
		}
		if found == nil {
			found = make(map[string]string)
		}
		found[key] = value
	}
	serviceName := ""
	for variable := range strings.SplitSeq(environment, "\x00") {
		switch name, text, _ := strings.Cut(variable, "="); name {
		case "OTEL_SERVICE_NAME":
			serviceName = text
		case "OTEL_RESOURCE_ATTRIBUTES":
			for pair := range strings.SplitSeq(text, ",") {
				key, value, _ := strings.Cut(pair, "=")
				key = strings.TrimSpace(key)
				value, err := url.PathUnescape(strings.TrimSpace(value))
				if err == nil && slices.Contains(serviceAttributes, key) {
					add(key, value)
				}
			}
		}
	}
	add(attributeServiceName, serviceName)
	return found
}
