// SPDX-License-Identifier: BSD-2-Clause

package commandline

import "runtime/debug"

// Version returns a line that says which build of a command this is, as far as
// the build recorded it.
func Version(command string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return command + " (unknown version)\n"
	}
	version := info.Main.Version
	if version == "" || version == "(devel)" {
		version = "(devel)"
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				version += " " + setting.Value
			}
		}
	}
	return command + " " + version + " " + info.GoVersion + "\n"
}
