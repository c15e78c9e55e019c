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
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
	"github.com/gousdt/gousdt/usdt/proc"
)

// resource is a process, or a container or other control group. Equal ones are
// the same pointer. Nil is the resource of what is over a limit, see
// fillResource.
type resource struct {
	process   *process // nil for a control group
	group     uint64   // ID of the control group
	path      string   // of the control group, or ""
	isFound   bool     // the control group was there
	container proc.Container
	instance  string            // service.instance.id
	service   map[string]string // what the environment says; nil if it is not known

	// Used by processes.
	used     time.Time // when it was last asked for
	asked    uint64    // processes.seen when its service was last asked for
	replaced bool      // by one whose service is known
}

// Attributes of resources that come from the environment of processes, and of
// what has no process as its resource.
const (
	attributePID         = "process.pid"
	attributeServiceName = "service.name"
)

// unknownService is the name of a service that nothing is known about.
const unknownService = "unknown_service"

// fillResource sets the attributes of a resource, those of them that the
// configuration wants, or those of what is over a limit.
func (r *usdtReceiver) fillResource(to pcommon.Resource, of *resource) {
	b := metadata.NewResourceBuilder(r.config.ResourceAttributes)
	put := func(set func(string), value string) {
		if value != "" {
			set(validText(value))
		}
	}
	if of == nil {
		// Each receiver of a fleet has such a series of its own, and a backend
		// is to tell them apart.
		b.SetServiceInstanceID(instanceID(r.processes.boot, "receiver", r.settings.ID.String()))
		b.Emit().MoveTo(to)
		to.Attributes().PutStr(attributeServiceName, unknownService)
		return
	}
	if p := of.process; p != nil {
		b.SetProcessPid(int64(p.PID))
		b.SetProcessParentPid(int64(p.Parent))
		put(b.SetProcessExecutableName, p.name())
		put(b.SetProcessExecutablePath, p.executable)
	}
	put(b.SetProcessLinuxCgroup, of.path)
	put(b.SetContainerID, of.container.ID)
	put(b.SetContainerRuntimeName, of.container.Runtime)
	put(b.SetK8sPodUID, of.container.PodUID)
	put(b.SetServiceInstanceID, of.instance)
	b.Emit().MoveTo(to)
	for key, value := range of.service {
		putText(to.Attributes(), key, value)
	}
	// The k8sattributes processor knows the service of a container, and sets
	// its name where there is none.
	if of.service[attributeServiceName] == "" && of.container.ID == "" {
		// The name that the specification has for a service without one.
		putText(to.Attributes(), attributeServiceName,
			strings.TrimSuffix(unknownService+":"+of.name(), ":"))
	}
}

// scopeOf returns the scope of a resource in the data to send. If there is
// none, add adds it, and scopeOf sets the resource, the receiver's name and
// version, and the schema URL of the attributes.
func scopeOf[R interface {
	Resource() pcommon.Resource
	SetSchemaUrl(string)
}, S interface {
	Scope() pcommon.InstrumentationScope
}](
	r *usdtReceiver, known map[*resource]S, of *resource, add func() (R, S),
) S {
	if scope, ok := known[of]; ok {
		return scope
	}
	to, scope := add()
	r.fillResource(to.Resource(), of)
	to.SetSchemaUrl(semconv.SchemaURL)
	scope.Scope().SetName(metadata.ScopeName)
	scope.Scope().SetVersion(r.settings.BuildInfo.Version)
	known[of] = scope
	return scope
}

// name returns a name for a service that has none of its own.
func (r *resource) name() string {
	if r.process != nil {
		return r.process.name()
	}
	unit := proc.UnitOf(r.path)
	return strings.TrimSuffix(unit, path.Ext(unit))
}

// instanceID returns a UUID that is the same for the same parts.
func instanceID(parts ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", parts))
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80 // version 8: a format of its own
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// bootID tells times after boot, PIDs and control groups of one boot of one
// machine from those of all others. It is "" where the kernel does not say.
func bootID(fs procfs.FS) string {
	text, _ := os.ReadFile(path.Join(fs.Root(), "sys/kernel/random/boot_id"))
	return strings.TrimSpace(string(text))
}
