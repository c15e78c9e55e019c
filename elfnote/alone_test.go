// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// TestCopiedAlone builds the packages that docs/migrate.md says to copy, in a
// module that requires nothing.
func TestCopiedAlone(t *testing.T) {
	const module = "github.com/gousdt/gousdt"
	dir := t.TempDir()
	for _, name := range []string{"argspec", "elfnote", "internal/elffile", "internal/pattern"} {
		files, err := filepath.Glob(filepath.Join("..", name, "*.go"))
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Join(dir, name), 0o755)))
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			qt.Assert(t, qt.IsNil(err))
			copied := strings.ReplaceAll(string(text), module+"/", "example.org/agent/")
			// A copied file shows its terms.
			licensed := strings.HasPrefix(copied, "// SPDX-License-Identifier: BSD-2-Clause\n")
			qt.Check(t, qt.IsTrue(licensed), qt.Commentf("%s", file))
			err = os.WriteFile(filepath.Join(dir, name, filepath.Base(file)), []byte(copied), 0o644)
			qt.Assert(t, qt.IsNil(err))
		}
	}
	mod := []byte("module example.org/agent\n\ngo 1.25.0\n")
	qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o644)))
	build := exec.Command("go", "build", "./...")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOPROXY=off")
	out, err := build.CombinedOutput()
	qt.Check(t, qt.IsNil(err), qt.Commentf("%s", out))
}
