// SPDX-License-Identifier: BSD-2-Clause

package deadline

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

const uid = "e0f4b1d2-6a6c-4a2e-9d1c-3f0b7c5a9e11"

var (
	id    = strings.Repeat("0123456789abcdef", 4)
	other = strings.Repeat("fedcba9876543210", 4)
	slice = strings.ReplaceAll(uid, "-", "_")
)

// found is short: the tables have it often.
type found = Container

func TestContainerOf(t *testing.T) {
	for _, test := range []struct {
		name, cgroup string
		want         found
	}{
		{"docker, systemd",
			"/system.slice/docker-" + id + ".scope", found{ID: id, Runtime: "docker"}},
		{"docker, directories", "/docker/" + id, found{ID: id, Runtime: "docker"}},
		{"docker, a cgroup below",
			"/system.slice/docker-" + id + ".scope/init.scope", found{ID: id, Runtime: "docker"}},
		{"docker in docker",
			"/docker/" + id + "/docker/" + other, found{ID: id, Runtime: "docker"}},
		{"containerd in a pod, systemd",
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + slice +
				".slice/cri-containerd-" + id + ".scope",
			found{ID: id, Runtime: "containerd", PodUID: uid}},
		{"a guaranteed pod",
			"/kubepods.slice/kubepods-pod" + slice + ".slice/cri-containerd-" + id + ".scope",
			found{ID: id, Runtime: "containerd", PodUID: uid}},
		{"containerd in a pod, directories",
			"/kubepods/besteffort/pod" + uid + "/" + id, found{ID: id, PodUID: uid}},
		{"containerd in a pod, colons",
			"/system.slice/containerd.service/kubepods-burstable-pod" + slice +
				".slice:cri-containerd:" + id,
			found{ID: id, Runtime: "containerd"}},
		{"nerdctl", "/system.slice/nerdctl-" + id + ".scope", found{ID: id, Runtime: "containerd"}},
		{"CRI-O", "/kubepods.slice/kubepods-pod" + slice + ".slice/crio-" + id + ".scope/container",
			found{ID: id, Runtime: "cri-o", PodUID: uid}},
		{"the monitor of CRI-O", "/kubepods.slice/crio-conmon-" + id + ".scope", found{}},
		{"podman", "/machine.slice/libpod-" + id + ".scope", found{ID: id, Runtime: "podman"}},
		{"podman of a user",
			"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id +
				".scope/container",
			found{}},
		{"a container that a user makes up",
			"/user.slice/user-1000.slice/user@1000.service/lxc.payload.4c01db0b339c", found{}},
		{"a container that a service makes up",
			"/system.slice/shop.service/docker-" + id + ".scope", found{}},
		{"a container that a session makes up",
			"/user.slice/user-1000.slice/session-2.scope/docker-" + id + ".scope", found{}},
		{"a container that a container makes up",
			"/docker/" + id + "/lxc.payload.web", found{ID: id, Runtime: "docker"}},
		{"k3s", "/system.slice/k3s.service/kubepods/besteffort/pod" + uid + "/" + id,
			found{ID: id, PodUID: uid}},
		{"the monitor of podman", "/machine.slice/libpod-conmon-" + id + ".scope", found{}},
		{"a pod of podman",
			"/machine.slice/machine-libpod_pod_" + other + ".slice/libpod-" + id + ".scope",
			found{ID: id, Runtime: "podman"}},
		{"kind, whose nodes are containers",
			"/docker/" + other +
				"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/" +
				"kubelet-kubepods-besteffort-pod" + slice + ".slice/cri-containerd-" +
				id + ".scope",
			found{ID: other, Runtime: "docker"}},
		{"lxc", "/lxc.payload.web", found{ID: "web", Runtime: "lxc"}},
		{"lxc, directories",
			"/lxc/web/system.slice/nginx.service", found{ID: "web", Runtime: "lxc"}},
		{"systemd-nspawn", `/machine.slice/machine-debian\x2d12.scope/payload`,
			found{ID: "debian-12", Runtime: "systemd-nspawn"}},
		{"systemd-nspawn as a service", "/machine.slice/systemd-nspawn@web.service/payload",
			found{ID: "web", Runtime: "systemd-nspawn"}},
		{"Amazon ECS",
			"/ecs/0123456789abcdef0123456789abcdef/0123456789abcdef0123456789abcdef-1234567890",
			found{ID: "0123456789abcdef0123456789abcdef-1234567890"}},
		{"a service", "/system.slice/postgresql@15-main.service", found{}},
		{"a session", "/user.slice/user-0.slice/session-1.scope", found{}},
		{"the root", "/", found{}},
		{"nothing", "", found{}},
		{"an ID that is too short", "/docker/0123456789ab", found{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := ContainerOf(test.cgroup)
			qt.Assert(t, qt.Equals(ok, got.Cgroup != ""))
			qt.Assert(t, qt.IsTrue(strings.HasPrefix(test.cgroup, got.Cgroup)))
			got.Cgroup = ""
			qt.Assert(t, qt.Equals(got, test.want))
			qt.Assert(t, qt.Equals(ok, test.want != found{}))
		})
	}
}

func TestContainerOfProcess(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"version 2", "0::/system.slice/docker-" + id + ".scope\n", id},
		{"version 1", "12:pids:/docker/" + id + "\n1:name=systemd:/docker/" + id + "\n0::/\n", id},
		{"both", "12:pids:/docker/" + id + "\n0::/docker/" + other + "\n", other},
		{"none", "0::/init.scope\n", ""},
		{"a colon in the path", "0::/a:b/docker-" + id + ".scope\n", id},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := ContainerOf(test.text)
			qt.Assert(t, qt.Equals(got.ID, test.want))
			qt.Assert(t, qt.Equals(ok, test.want != ""))
		})
	}
}

func TestUnitOf(t *testing.T) {
	qt.Assert(t, qt.Equals(UnitOf("/system.slice/postgresql@15-main.service"),
		"postgresql@15-main.service"))
	qt.Assert(t, qt.Equals(UnitOf("/user.slice/user-0.slice/session-1.scope"),
		"session-1.scope"))
	qt.Assert(t, qt.Equals(UnitOf("/"), ""))
	qt.Assert(t, qt.Equals(UnitOf(
		"/user.slice/user-1000.slice/user@1000.service/app.slice/postgresql@15-main.service"),
		"user@1000.service"))
}

// Cgroups that a process makes below its own are of no other container or unit.
func FuzzContainerOfBelow(f *testing.F) {
	f.Add("/system.slice/docker-"+id+".scope", "lxc.payload.web")
	f.Add("/user.slice/user-1000.slice/user@1000.service", "docker-"+id+".scope")
	f.Add("/system.slice/shop.service", "kubepods/pod"+uid+"/"+id)
	f.Fuzz(func(t *testing.T, cgroup, below string) {
		c, ok := ContainerOf(cgroup)
		unit := UnitOf(cgroup)
		if !strings.HasPrefix(cgroup, "/") || !ok && (unit == "" || strings.HasPrefix(unit, "docker")) {
			return // no path, or only the owner of the machine makes cgroups there
		}
		again, _ := ContainerOf(cgroup + "/" + below)
		if ok {
			qt.Check(t, qt.Equals(again, c))
		}
	})
}

func FuzzContainerOf(f *testing.F) {
	f.Add("/kubepods.slice/kubepods-pod" + slice + ".slice/crio-" + id + ".scope/container")
	f.Add(`/machine.slice/machine-a\x2db.scope`)
	f.Fuzz(func(t *testing.T, cgroup string) {
		c, ok := ContainerOf(cgroup)
		// A hyphen may be escaped.
		isPart := strings.Contains(c.ID, "-") || strings.Contains(cgroup, c.ID)
		if ok != (c.ID != "") || !isPart {
			t.Errorf("%q: %+v", cgroup, c)
		}
		ContainerOf("0::" + cgroup)
		UnitOf(cgroup)
	})
}
