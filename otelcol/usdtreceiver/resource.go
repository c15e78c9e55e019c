// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/gousdt/gousdt/container"
	"github.com/gousdt/gousdt/proc"
)

// resource is a process, or a container or other control group. Equal ones are
// the same pointer. Nil is the resource of what is over a limit, see
// fillResource.
type resource struct {
	process   *process // nil for a control group
	group     uint64   // ID of the control group
	path      string   // of the control group, or ""
	container container.Container
	instance  string            // service.instance.id
	service   map[string]string // what the environment says; nil if it is not known

	// These are for processes.
	used     time.Time // when it was last asked for
	asked    uint64    // processes.seen when its service was last asked for
	replaced bool      // by one whose service is known
}

// Attributes of resources, as the semantic conventions call them.
const (
	attributePID            = "process.pid"
	attributeParentPID      = "process.parent_pid"
	attributeExecutableName = "process.executable.name"
	attributeExecutablePath = "process.executable.path"
	attributeCgroup         = "process.linux.cgroup"
	attributeContainerID    = "container.id"
	attributeRuntime        = "container.runtime.name"
	attributePodUID         = "k8s.pod.uid"
	attributeServiceName    = "service.name"
	attributeInstance       = "service.instance.id"
)

// fill sets the attributes of the resource.
func (r *resource) fill(to pcommon.Resource) {
	a := to.Attributes()
	put := func(name, value string) {
		if value != "" {
			putText(a, name, value)
		}
	}
	for key, value := range r.service {
		put(key, value)
	}
	if p := r.process; p != nil {
		a.PutInt(attributePID, int64(p.PID))
		a.PutInt(attributeParentPID, int64(p.Parent))
		put(attributeExecutableName, p.name())
		put(attributeExecutablePath, p.executable)
	}
	put(attributeCgroup, r.path)
	put(attributeContainerID, r.container.ID)
	put(attributeRuntime, r.container.Runtime)
	put(attributePodUID, r.container.PodUID)
	put(attributeInstance, r.instance)
	if _, ok := a.Get(attributeServiceName); !ok {
		// What the specification says of a service without a name.
		put(attributeServiceName, strings.TrimSuffix(unknownService+":"+r.name(), ":"))
	}
}

// unknownService is the name of a service of which nothing is known.
const unknownService = "unknown_service"

// fillResource sets the attributes of a resource, or those of what is over a
// limit.
func (r *usdtReceiver) fillResource(to pcommon.Resource, of *resource) {
	if of != nil {
		of.fill(to)
		return
	}
	// Each receiver of a fleet has such a series of its own, and a backend is
	// to tell them apart.
	to.Attributes().PutStr(attributeServiceName, unknownService)
	to.Attributes().PutStr(attributeInstance,
		instanceID(r.processes.boot, "receiver", r.settings.ID.String()))
}

// name returns what stands for the name of a service that has none.
func (r *resource) name() string {
	if r.process != nil {
		return r.process.name()
	}
	unit := container.Unit(r.path)
	return strings.TrimSuffix(unit, path.Ext(unit))
}

// instanceID returns a UUID that is the same for the same parts.
func instanceID(parts ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", parts))
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80 // version 8: made as its maker likes
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// bootID tells times after boot, PIDs and control groups of one boot of one
// machine from those of all others. It is "" where the kernel does not say.
func bootID(fs *proc.FS) string {
	text, _ := os.ReadFile(path.Join(fs.Root(), "sys/kernel/random/boot_id"))
	return strings.TrimSpace(string(text))
}
