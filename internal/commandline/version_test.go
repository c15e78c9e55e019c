// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestVersionOfEachWayOfBuilding(t *testing.T) {
	const unchanged = "$Format:%(describe:tags)$\n"
	revision := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123abc"}}
	for _, test := range []struct {
		name, linked, archive, main string
		settings                    []debug.BuildSetting
		want                        string
	}{
		{"go install module@version", "", unchanged, "v1.2.3", nil, "v1.2.3"},
		{"a checkout of a tag", "", unchanged, "v1.2.3", revision, "v1.2.3"},
		{"a checkout that Go knows no version of", "", unchanged, "(devel)", revision,
			"(devel) 0123abc"},
		{"go run, or no version control", "", unchanged, "(devel)", nil, "(devel)"},
		{"an archive of a tag", "", "v1.2.3\n", "(devel)", nil, "v1.2.3"},
		{"an archive without a tag", "", "\n", "(devel)", nil, "(devel)"},
		{"a package", "v1.2.3-1", unchanged, "(devel)", revision, "v1.2.3-1"},
		{"GOPATH", "", unchanged, "", nil, "(devel)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			info := &debug.BuildInfo{Main: debug.Module{Version: test.main},
				Settings: test.settings}
			qt.Check(t, qt.Equals(version(test.linked, test.archive, info), test.want))
		})
	}
	qt.Check(t, qt.IsTrue(strings.HasPrefix(Version("tool"), "tool ")))
}
