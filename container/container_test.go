// SPDX-License-Identifier: BSD-2-Clause

package container_test

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/container"
)

const uid = "e0f4b1d2-6a6c-4a2e-9d1c-3f0b7c5a9e11"

var (
	id    = strings.Repeat("0123456789abcdef", 4)
	other = strings.Repeat("fedcba9876543210", 4)
	slice = strings.ReplaceAll(uid, "-", "_")
)

// made is short: the tables have it often.
type made = container.Container

func TestOf(t *testing.T) {
	for _, test := range []struct {
		name, cgroup string
		want         made
	}{
		{"docker, systemd",
			"/system.slice/docker-" + id + ".scope", made{ID: id, Runtime: "docker"}},
		{"docker, directories", "/docker/" + id, made{ID: id, Runtime: "docker"}},
		{"docker, a cgroup below",
			"/system.slice/docker-" + id + ".scope/init.scope", made{ID: id, Runtime: "docker"}},
		{"docker in docker",
			"/docker/" + id + "/docker/" + other, made{ID: id, Runtime: "docker"}},
		{"containerd in a pod, systemd",
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + slice +
				".slice/cri-containerd-" + id + ".scope",
			made{ID: id, Runtime: "containerd", PodUID: uid}},
		{"a guaranteed pod",
			"/kubepods.slice/kubepods-pod" + slice + ".slice/cri-containerd-" + id + ".scope",
			made{ID: id, Runtime: "containerd", PodUID: uid}},
		{"containerd in a pod, directories",
			"/kubepods/besteffort/pod" + uid + "/" + id, made{ID: id, PodUID: uid}},
		{"containerd in a pod, colons",
			"/system.slice/containerd.service/kubepods-burstable-pod" + slice +
				".slice:cri-containerd:" + id,
			made{ID: id, Runtime: "containerd"}},
		{"nerdctl", "/system.slice/nerdctl-" + id + ".scope", made{ID: id, Runtime: "containerd"}},
		{"CRI-O", "/kubepods.slice/kubepods-pod" + slice + ".slice/crio-" + id + ".scope/container",
			made{ID: id, Runtime: "cri-o", PodUID: uid}},
		{"the monitor of CRI-O", "/kubepods.slice/crio-conmon-" + id + ".scope", made{}},
		{"podman", "/machine.slice/libpod-" + id + ".scope", made{ID: id, Runtime: "podman"}},
		{"podman of a user",
			"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id +
				".scope/container",
			made{}},
		{"a container that a user makes up",
			"/user.slice/user-1000.slice/user@1000.service/lxc.payload.4c01db0b339c", made{}},
		{"a container that a service makes up",
			"/system.slice/shop.service/docker-" + id + ".scope", made{}},
		{"a container that a session makes up",
			"/user.slice/user-1000.slice/session-2.scope/docker-" + id + ".scope", made{}},
		{"a container that a container makes up",
			"/docker/" + id + "/lxc.payload.web", made{ID: id, Runtime: "docker"}},
		{"k3s", "/system.slice/k3s.service/kubepods/besteffort/pod" + uid + "/" + id,
			made{ID: id, PodUID: uid}},
		{"the monitor of podman", "/machine.slice/libpod-conmon-" + id + ".scope", made{}},
		{"a pod of podman",
			"/machine.slice/machine-libpod_pod_" + other + ".slice/libpod-" + id + ".scope",
			made{ID: id, Runtime: "podman"}},
		{"kind, whose nodes are containers",
			"/docker/" + other +
				"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/" +
				"kubelet-kubepods-besteffort-pod" + slice + ".slice/cri-containerd-" +
				id + ".scope",
			made{ID: other, Runtime: "docker"}},
		{"lxc", "/lxc.payload.web", made{ID: "web", Runtime: "lxc"}},
		{"lxc, directories",
			"/lxc/web/system.slice/nginx.service", made{ID: "web", Runtime: "lxc"}},
		{"systemd-nspawn", `/machine.slice/machine-debian\x2d12.scope/payload`,
			made{ID: "debian-12", Runtime: "systemd-nspawn"}},
		{"systemd-nspawn as a service", "/machine.slice/systemd-nspawn@web.service/payload",
			made{ID: "web", Runtime: "systemd-nspawn"}},
		{"Amazon ECS",
			"/ecs/0123456789abcdef0123456789abcdef/0123456789abcdef0123456789abcdef-1234567890",
			made{ID: "0123456789abcdef0123456789abcdef-1234567890"}},
		{"a service", "/system.slice/postgresql@15-main.service", made{}},
		{"a session", "/user.slice/user-0.slice/session-1.scope", made{}},
		{"the root", "/", made{}},
		{"nothing", "", made{}},
		{"an ID that is too short", "/docker/0123456789ab", made{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := container.Of(test.cgroup)
			qt.Assert(t, qt.Equals(ok, got.Cgroup != ""))
			qt.Assert(t, qt.IsTrue(strings.HasPrefix(test.cgroup, got.Cgroup)))
			got.Cgroup = ""
			qt.Assert(t, qt.Equals(got, test.want))
			qt.Assert(t, qt.Equals(ok, test.want != made{}))
		})
	}
}

func TestOfProcess(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"version 2", "0::/system.slice/docker-" + id + ".scope\n", id},
		{"version 1", "12:pids:/docker/" + id + "\n1:name=systemd:/docker/" + id + "\n0::/\n", id},
		{"both", "12:pids:/docker/" + id + "\n0::/docker/" + other + "\n", other},
		{"none", "0::/init.scope\n", ""},
		{"a colon in the path", "0::/a:b/docker-" + id + ".scope\n", id},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := container.Of(test.text)
			qt.Assert(t, qt.Equals(got.ID, test.want))
			qt.Assert(t, qt.Equals(ok, test.want != ""))
		})
	}
}

func TestUnit(t *testing.T) {
	qt.Assert(t, qt.Equals(container.Unit("/system.slice/postgresql@15-main.service"),
		"postgresql@15-main.service"))
	qt.Assert(t, qt.Equals(container.Unit("/user.slice/user-0.slice/session-1.scope"),
		"session-1.scope"))
	qt.Assert(t, qt.Equals(container.Unit("/"), ""))
	qt.Assert(t, qt.Equals(container.Unit(
		"/user.slice/user-1000.slice/user@1000.service/app.slice/postgresql@15-main.service"),
		"user@1000.service"))
}

// Cgroups that a process makes below its own are of no other container or unit.
func FuzzOfBelow(f *testing.F) {
	f.Add("/system.slice/docker-"+id+".scope", "lxc.payload.web")
	f.Add("/user.slice/user-1000.slice/user@1000.service", "docker-"+id+".scope")
	f.Add("/system.slice/shop.service", "kubepods/pod"+uid+"/"+id)
	f.Fuzz(func(t *testing.T, cgroup, below string) {
		c, ok := container.Of(cgroup)
		unit := container.Unit(cgroup)
		if !strings.HasPrefix(cgroup, "/") || !ok && (unit == "" || strings.HasPrefix(unit, "docker")) {
			return // no path, or only the owner of the machine makes cgroups there
		}
		again, _ := container.Of(cgroup + "/" + below)
		if ok {
			qt.Check(t, qt.Equals(again, c))
		}
	})
}

func FuzzOf(f *testing.F) {
	f.Add("/kubepods.slice/kubepods-pod" + slice + ".slice/crio-" + id + ".scope/container")
	f.Add(`/machine.slice/machine-a\x2db.scope`)
	f.Fuzz(func(t *testing.T, cgroup string) {
		c, ok := container.Of(cgroup)
		// A hyphen may be escaped.
		isPart := strings.Contains(c.ID, "-") || strings.Contains(cgroup, c.ID)
		if ok != (c.ID != "") || !isPart {
			t.Errorf("%q: %+v", cgroup, c)
		}
		container.Of("0::" + cgroup)
		container.Unit(cgroup)
	})
}
