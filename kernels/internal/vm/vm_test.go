// SPDX-License-Identifier: BSD-2-Clause

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

// follow feeds a console and returns what it passed on, "job:line".
func follow(t *testing.T, text string) (*console, []string) {
	t.Helper()
	var lines []string
	c := newConsole("token", func(job int, line string) {
		lines = append(lines,
			fmt.Sprintf("%d:%s", job, line))
	})
	qt.Assert(t, qt.IsNil(c.read(strings.NewReader(text))))
	return c, lines
}

func marker(e platform.Event) string { return platform.Marker("token", e) + "\r\n" }

func TestConsoleTellsTheJobsApart(t *testing.T) {
	c, lines := follow(t, "SeaBIOS\r\n"+
		marker(platform.Event{Kind: platform.Booted, Text: "6.12.1"})+
		marker(platform.Event{Kind: platform.Started, Job: 0})+
		"=== RUN\r\n\r\nwithout an end"+
		marker(platform.Event{Kind: platform.Exited, Job: 0, Status: 1})+
		"[ 1.0] a message\r\n"+
		marker(platform.Event{Kind: platform.Started, Job: 1})+
		marker(platform.Event{Kind: platform.Exited, Job: 1, Status: 0})+
		marker(platform.Event{Kind: platform.Done})+
		"[ 2.0] reboot: Power down\r\n")
	qt.Check(t, qt.DeepEquals(lines, []string{
		"-1:SeaBIOS",
		"0:=== RUN", "0:", "0:without an end",
		"-1:[ 1.0] a message",
	}))
	qt.Check(t, qt.Equals(c.release, "6.12.1"))
	qt.Check(t, qt.DeepEquals(c.statuses, map[int]int{0: 1, 1: 0}))
	qt.Check(t, qt.IsTrue(c.done))
	qt.Check(t, qt.Equals(c.panicked, ""))
}

func TestMarkerBehindAKernelMessageIsSeen(t *testing.T) {
	c, lines := follow(t, "[ 1.0] half a mess"+platform.Marker("token",
		platform.Event{Kind: platform.Done})+"\r\n")
	qt.Check(t, qt.IsTrue(c.done))
	qt.Check(t, qt.DeepEquals(lines, []string{"-1:[ 1.0] half a mess"}))
}

func TestPanicIsNoticed(t *testing.T) {
	c, _ := follow(t, marker(platform.Event{Kind: platform.Started, Job: 0})+
		"[ 1.0] Kernel panic - not syncing: Fatal exception\r\n[ 1.1] Rebooting\r\n")
	qt.Check(t, qt.Equals(c.panicked, "[ 1.0] Kernel panic - not syncing: Fatal exception"))
	qt.Check(t, qt.IsFalse(c.done))
	qt.Check(t, qt.HasLen(c.statuses, 0))
}

func TestConsoleKeepsOnlyTheEnd(t *testing.T) {
	var text strings.Builder
	for i := range 3 * keptLines {
		fmt.Fprintf(&text, "%d\n", i)
	}
	text.WriteString(strings.Repeat("x", 3*maxConsoleLine))
	c, lines := follow(t, text.String())
	qt.Check(t, qt.HasLen(c.last, keptLines))
	qt.Check(t, qt.HasLen(lines, 3*keptLines+3), qt.Commentf("an endless line is cut"))
}

func TestEnvironmentIsOurs(t *testing.T) {
	machine, err := platform.MachineByName("amd64")
	qt.Assert(t, qt.IsNil(err))
	g, err := NewGuest(machine, t.TempDir(), "s390x/6.12", []string{"PATH=/usr/bin", "CI=true",
		"GOUSDT_X=1", "GOUSDT_TESTDATA=/home", "GOUSDT_GUEST=old", "LANG=C"})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(g.env[len(g.env)-3:], []string{
		"GOUSDT_TESTDATA=/src/testdata/build", "GOUSDT_GUEST=s390x/6.12", "GOUSDT_X=1"}))
}

// newCheckout makes a repository's directory with testdata and a package.
func newCheckout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{
		"testdata/vectors.txt", "testdata/build/amd64/target", "testdata/build/386/target",
		"testdata/build/s390x/target",
		"usdt/testdata/file", "usdt/usdt.test", "init",
	} {
		file := filepath.Join(dir, name)
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(file), 0o755)))
		qt.Assert(t, qt.IsNil(os.WriteFile(file, nil, 0o755)))
	}
	return dir
}

func newGuest(t *testing.T, dir string) *Guest {
	t.Helper()
	machine, err := platform.MachineByName("amd64")
	qt.Assert(t, qt.IsNil(err))
	g, err := NewGuest(machine, dir, "amd64/6.12", nil)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(g.AddTest(filepath.Join(dir, "usdt/usdt.test"),
		filepath.Join(dir, "usdt"), time.Second, "-test.v")))
	return g
}

func TestGuestLooksLikeTheCheckout(t *testing.T) {
	dir := newCheckout(t)
	g := newGuest(t, dir)
	for name, want := range map[string]bool{
		"/src/testdata/vectors.txt":        true,
		"/src/testdata/build/amd64/target": true,
		"/src/testdata/build/386/target":   true,
		"/src/testdata/build/s390x/target": true,
		"/src/usdt/testdata/file":          true,
		"/src/usdt/usdt.test":              true,
		"/src/init":                        false,
	} {
		qt.Check(t, qt.Equals(has(&g.archive, name), want), qt.Commentf("%s", name))
	}
	job := g.jobs[0]
	qt.Check(t, qt.Equals(job.Path, "/src/usdt/usdt.test"))
	qt.Check(t, qt.Equals(job.Dir, "/src/usdt"))
	qt.Check(t, qt.DeepEquals(job.Args, []string{"-test.v"}))
	qt.Check(t, qt.IsTrue(slices.Contains(job.Env, "GOUSDT_TESTDATA=/src/testdata/build")))
	qt.Check(t, qt.IsTrue(slices.Contains(job.Env, "GOUSDT_GUEST=amd64/6.12")))

	err := g.AddTest(filepath.Join(dir, "usdt/usdt.test"), t.TempDir(), time.Second)
	qt.Check(t, qt.ErrorMatches(err, ".* is not in the checkout .*"))
}

func scriptEmulator(t *testing.T, script string) Emulator {
	t.Helper()
	path := filepath.Join(t.TempDir(), "emulator")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755)))
	return Emulator{Path: path}
}

// runScript runs a guest under an emulator that is a shell script.
func runScript(t *testing.T, ctx context.Context, script string) (Result, *GuestError) {
	t.Helper()
	dir := newCheckout(t)
	result, err := newGuest(t, dir).Run(ctx, Options{
		Emulator: scriptEmulator(t, script), Kernel: "/nowhere", Init: filepath.Join(dir, "init"),
		BootTime: 200 * time.Millisecond,
	})
	var guestError *GuestError
	qt.Assert(t, qt.IsTrue(errors.As(err, &guestError)), qt.Commentf("%v", err))
	return result, guestError
}

func TestSilentGuestIsGivenUp(t *testing.T) {
	_, err := runScript(t, context.Background(), "echo SeaBIOS; exec sleep 60")
	qt.Check(t, qt.Equals(err.Reason, "it did not boot within 200ms"))
	qt.Check(t, qt.DeepEquals(err.Console, []string{"SeaBIOS"}))
}

func TestGuestThatDoesNotBootIsTriedAgain(t *testing.T) {
	result, err := runScript(t, context.Background(), "echo 'Kernel panic - not syncing: timer'")
	qt.Check(t, qt.Equals(err.Reason, "Kernel panic - not syncing: timer"))
	qt.Check(t, qt.Equals(result.Attempts, bootAttempts))
}

func TestEmulatorThatFailsIsQuoted(t *testing.T) {
	_, err := runScript(t, context.Background(), "echo 'could not load kernel' >&2; exit 1")
	qt.Check(t, qt.Equals(err.Emulator, "could not load kernel"))
	qt.Check(t, qt.ErrorMatches(err, `(?s)guest: exit status 1\n\tQEMU: could not load kernel`))
}

func TestGuestThatEndsWithoutAVerdictHasFailed(t *testing.T) {
	_, err := runScript(t, context.Background(), "echo PASS")
	qt.Check(t, qt.Equals(err.Reason, "the machine went off before all tests were done"))
}

func TestPanicIsTheReasonWhateverTheEmulatorSays(t *testing.T) {
	_, err := runScript(t, context.Background(), "echo 'Kernel panic - not syncing: test'; exit 0")
	qt.Check(t, qt.Equals(err.Reason, "Kernel panic - not syncing: test"))
}

// findToken is a script that finds the token where the guest does, in the
// initramfs.
const findToken = `
while [ "$1" != -initrd ]; do shift; done
token=$(sed -n 's/.*"Token":"\([A-Z0-9]*\)".*/\1/p' "$2")
`

func TestVerdictIsTheMarkersOfThisRun(t *testing.T) {
	dir := newCheckout(t)
	result, err := newGuest(t, dir).Run(context.Background(), Options{
		Emulator: scriptEmulator(t, findToken+`
echo "@gousdt-guest $token "'{"Kind":"booted","Text":"6.12.1"}'
echo "@gousdt-guest $token "'{"Kind":"started"}'
echo "@gousdt-guest $token "'{"Kind":"exited","Status":3}'
echo "@gousdt-guest $token "'{"Kind":"done"}'
`),
		Kernel: "/nowhere", Init: filepath.Join(dir, "init"),
	})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(result.Release, "6.12.1"))
	qt.Check(t, qt.Equals(result.Attempts, 1))
	qt.Check(t, qt.DeepEquals(result.Statuses, map[int]int{0: 3}))
}

func TestGuestThatHangsAfterBootingIsGivenUp(t *testing.T) {
	dir := newCheckout(t)
	g := newGuest(t, dir)
	g.jobs[0].Timeout = 200*time.Millisecond - jobGrace - offTime
	result, err := g.Run(context.Background(), Options{
		Emulator: scriptEmulator(t, findToken+`
echo "@gousdt-guest $token "'{"Kind":"booted","Text":"6.12.1"}'
echo "@gousdt-guest $token "'{"Kind":"started"}'
echo "the last words"
exec sleep 60
`),
		Kernel: "/nowhere", Init: filepath.Join(dir, "init"),
	})
	var guestError *GuestError
	qt.Assert(t, qt.IsTrue(errors.As(err, &guestError)), qt.Commentf("%v", err))
	qt.Check(t, qt.Equals(guestError.Reason, "no verdict within 200ms"))
	qt.Check(t, qt.DeepEquals(guestError.Console, []string{"the last words"}))
	qt.Check(t, qt.Equals(result.Attempts, 1), qt.Commentf("tests must not run twice"))
	qt.Check(t, qt.HasLen(result.Statuses, 0))
}
