// SPDX-License-Identifier: BSD-2-Clause

package deadline

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// Cgroups that a process makes below its own have the same owner.
func FuzzCgroupOwner(f *testing.F) {
	container := strings.Repeat("0123456789abcdef", 4)
	for _, path := range []string{
		"/", "/init.scope", "/user.slice/user-1000.slice/session-2.scope", "/system.slice/docker-" +
			container + ".scope",
		"/kubepods/burstable/pod7/" + container, "a/../b", "/a//b/",
	} {
		f.Add("0::"+path+"\n", "/below")
	}
	f.Add("12:cpu:/a\n0::/\n", "x")
	f.Fuzz(func(t *testing.T, text, below string) {
		owner, whole := cgroupOwner(text)
		qt.Assert(t, qt.IsTrue(strings.Contains(text, owner)))
		if !whole || strings.Contains(below, "\n") {
			return
		}
		again, stillWhole := cgroupOwner("0::" + owner + "/" + below)
		qt.Assert(t, qt.Equals(again, owner))
		qt.Assert(t, qt.IsTrue(stillWhole))
	})
}

func TestOwners(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for _, test := range []struct {
		text, owner string
		whole       bool
	}{
		{"", "", false},
		{"0::/\n", "/", false},
		{"0::/system.slice/ssh.service\n", "/system.slice/ssh.service", false},
		{"0::/a/b/c/d/e\n", "/a/b/c/d", false},
		{"0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope\n",
			"/user.slice/user-1000.slice", true},
		{"0::/system.slice/docker-" + id + ".scope/made/inside\n", "/system.slice/docker-" +
			id + ".scope", true},
		{"0::/kubepods.slice/kubepods-burstable.slice/kubepods-pod7.slice/cri-containerd-" +
			id + ".scope\n",
			"/kubepods.slice/kubepods-burstable.slice/kubepods-pod7.slice/cri-containerd-" + id +
				".scope", true},
		{"3:cpu:/\n2:pids:/docker/" + id + "\n1:name=systemd:/docker/" + id + "\n", "/docker/" + id,
			true},
		{"nonsense", "", false},
	} {
		owner, whole := cgroupOwner(test.text)
		qt.Check(t, qt.Equals(owner, test.owner))
		qt.Check(t, qt.Equals(whole, test.whole), qt.Commentf("%s", test.text))
	}
}
