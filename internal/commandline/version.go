// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	_ "embed"
	"runtime/debug"
	"strings"
)

// linked is the version that the build of a package gives:
//
//	go build -ldflags '-X github.com/gousdt/gousdt/internal/commandline.linked=v1.2.3'
var linked string

// archive is the tag that the source is of, where that comes from an archive of
// the repository: .gitattributes has git put it there.
//
//go:embed archive.txt
var archive string

// Version returns a line that says which build of a command this is, as far as
// the build recorded it.
func Version(command string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{GoVersion: "(unknown Go)"}
	}
	return command + " " + version(linked, archive, info) + " " + info.GoVersion + "\n"
}

func version(linked, archive string, info *debug.BuildInfo) string {
	archive = strings.TrimSpace(archive)
	switch {
	case linked != "":
		return linked
	case info.Main.Version != "" && info.Main.Version != "(devel)":
		return info.Main.Version // of the module, or of the checkout
	case archive != "" && !strings.HasPrefix(archive, "$"):
		return archive
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return "(devel) " + setting.Value
		}
	}
	return "(devel)"
}
