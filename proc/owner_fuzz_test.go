// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// Whatever cgroups somebody makes below the one that he lives in, they have the
// same owner.
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
