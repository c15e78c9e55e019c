// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// What people type wrong, and what they are told. The messages of the file are
// written by -update: read them as a user who has typed that.
func TestWrongCommandLinesGetAMessageAboutWhatWasTyped(t *testing.T) {
	testprog.RequireBPF(t)
	const file = "testdata/wrong.txt"
	golden, err := os.ReadFile(file)
	qt.Assert(t, qt.IsNil(err))
	dir := t.TempDir()
	for name, of := range map[string]string{"target": "target-pie", "members": "members",
		"stripped": "members-stripped"} {
		program, err := os.ReadFile(testprog.Path(t, of))
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, name), program, 0o755)))
	}
	qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "members.d"), []byte(
		"provider members { probe request(struct request *request, int code); };"), 0o600)))
	self, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	var got strings.Builder
	for line := range strings.Lines(string(golden)) {
		words, isCommand := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !isCommand {
			if strings.HasPrefix(line, "#") {
				got.WriteString(line)
			}
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), testneeds.Patience(runDeadline))
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", "-c", `usdttrace() { exec "$0" "$@"; }; `+words, self)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), runVariable+"=1", "HOME="+dir)
		output, err := cmd.CombinedOutput()
		qt.Check(t, qt.IsNotNil(err), qt.Commentf("%s", words))
		got.WriteString("$ " + words + "\n" + string(output))
	}
	if *update {
		qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(got.String()), 0o644)))
		return
	}
	qt.Check(t, qt.Equals(got.String(), string(golden)))
}

func TestProcessesOfOneNameAreListed(t *testing.T) {
	program := filepath.Join(t.TempDir(), "twins")
	sleep, err := os.ReadFile(testneeds.Tool(t, "sleep", "coreutils"))
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.WriteFile(program, sleep, 0o755)))
	for range 2 {
		cmd := exec.Command(program, "60")
		qt.Assert(t, qt.IsNil(cmd.Start()))
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	err = new(options).setPID("twins")
	qt.Check(t, qt.ErrorMatches(err, `these processes have that name: \d+ \d+; one process .*`))
}
