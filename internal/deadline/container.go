// SPDX-License-Identifier: BSD-2-Clause

package deadline

import (
	"slices"
	"strings"
)

// Container is what proc.Container has, and where the container is.
type Container struct {
	ID, Runtime, PodUID string
	// Cgroup is the path of the container's cgroup. All cgroups below it are
	// the container's.
	Cgroup string
}

// HasMadeUpID reports whether the runtime made up the ID, rather than a user.
func (c Container) HasMadeUpID() bool { return isID(c.ID) }

// ContainerOf returns the container of a cgroup, as proc.ContainerOf.
func ContainerOf(cgroup string) (Container, bool) {
	if strings.HasPrefix(cgroup, "/") {
		c, _ := identify(cgroup)
		return c, c.ID != ""
	}
	var found Container
	for line := range strings.Lines(cgroup) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		c, _ := identify(parts[2])
		if c.ID != "" && (found.ID == "" || parts[0] == "0") {
			found = c
		}
	}
	return found, found.ID != ""
}

// identify returns the container of a cgroup, and the outermost systemd unit,
// which may be the container.
func identify(cgroup string) (c Container, unit string) {
	podUID, parent := "", ""
	for end := 0; end < len(cgroup); {
		next := end + 1 + strings.IndexByte(cgroup[end+1:]+"/", '/')
		name := strings.TrimPrefix(cgroup[end:next], "/")
		if uid := pod(name); uid != "" {
			podUID = uid
		}
		if unit == "" && (strings.HasSuffix(name, ".service") || strings.HasSuffix(name, ".scope")) {
			unit = name
		}
		if c, ok := one(name, parent); ok {
			c.PodUID, c.Cgroup = podUID, cgroup[:next]
			return c, unit
		}
		if unit != "" && !isRuntime(unit) {
			return Container{}, unit
		}
		parent, end = name, next
	}
	return Container{}, unit
}

// runtimes are the beginnings of the names of services that make containers
// below themselves. Only the owner of the machine can start a system service by
// such a name.
var runtimes = []string{"docker", "containerd", "cri", "k3s", "rke2", "kubelet", "microk8s", "snap.",
	"podman", "lxc", "lxd", "incus", "nomad", "buildkit", "systemd-nspawn@"}

func isRuntime(unit string) bool {
	return strings.HasSuffix(unit, ".service") && slices.ContainsFunc(runtimes,
		func(name string) bool { return strings.HasPrefix(unit, name) })
}

// UnitOf returns the systemd unit of a cgroup, as proc.UnitOf.
func UnitOf(cgroup string) string {
	_, unit := identify(cgroup)
	return unit
}

// prefixes are those of runtimes before the ID, in the names of scopes and of
// directories.
var prefixes = []struct{ prefix, runtime string }{
	{"docker-", "docker"},
	{"cri-containerd-", "containerd"},
	{"nerdctl-", "containerd"},
	{"crio-", "cri-o"},
	{"libpod-", "podman"},
	{"lxc.payload.", "lxc"},
	{"lxc-", "lxc"},
}

// one returns the container that one directory stands for.
func one(name, parent string) (Container, bool) {
	scope := strings.HasSuffix(name, ".scope")
	name = strings.TrimSuffix(name, ".scope")
	for _, p := range prefixes {
		id, ok := strings.CutPrefix(name, p.prefix)
		if ok && (isID(id) || p.runtime == "lxc" && id != "") {
			return Container{ID: id, Runtime: p.runtime}, true
		}
	}
	// containerd without systemd: SLICE:cri-containerd:ID
	if parts := strings.Split(name, ":"); len(parts) == 3 && isID(parts[2]) {
		runtime := ""
		if strings.Contains(parts[1], "containerd") {
			runtime = "containerd"
		}
		return Container{ID: parts[2], Runtime: runtime}, true
	}
	machine, ok := strings.CutPrefix(name, "machine-")
	ok = ok && scope && parent == "machine.slice"
	if service, is := strings.CutPrefix(name, "systemd-nspawn@"); is {
		machine, ok = strings.TrimSuffix(service, ".service"), true
	}
	if ok {
		// systemd writes a hyphen in the name of a unit as \x2d.
		machine = strings.ReplaceAll(machine, `\x2d`, "-")
		return Container{ID: machine, Runtime: "systemd-nspawn"}, true
	}
	switch {
	case parent == "lxc" && name != "":
		return Container{ID: name, Runtime: "lxc"}, true
	case !isID(name) && !isTaskID(name):
		return Container{}, false
	case parent == "docker":
		return Container{ID: name, Runtime: "docker"}, true
	}
	return Container{ID: name}, true
}

// isID reports whether s is 64 hexadecimal digits, as runtimes make up.
func isID(s string) bool { return len(s) == 64 && isHex(s) }

// isTaskID reports whether s is the ID of a container of Amazon ECS on Fargate:
// 32 hexadecimal digits and a number.
func isTaskID(s string) bool {
	task, number, ok := strings.Cut(s, "-")
	return ok && len(task) == 32 && isHex(task) && number != "" &&
		strings.Trim(number, "0123456789") == ""
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// pod returns the UID of the Kubernetes pod that a directory stands for: of
// kubepods-burstable-podUID.slice, where the hyphens of the UID are
// underscores, or of podUID.
func pod(name string) string {
	name = strings.TrimSuffix(name, ".slice")
	if i := strings.LastIndex(name, "-pod"); i >= 0 && strings.Contains(name[:i], "kubepods") {
		name = name[i+1:]
	} else if strings.HasPrefix(name, "kubepods-pod") {
		name = strings.TrimPrefix(name, "kubepods-")
	}
	uid, ok := strings.CutPrefix(name, "pod")
	if !ok {
		return ""
	}
	uid = strings.ReplaceAll(uid, "_", "-")
	if len(uid) != 36 && len(uid) != 32 || !isHex(strings.ReplaceAll(uid, "-", "")) {
		return ""
	}
	return uid
}
