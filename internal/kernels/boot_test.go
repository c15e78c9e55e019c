// SPDX-License-Identifier: BSD-2-Clause

package kernels

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// booting prepares internal/kernels/boot with a shell script in place of QEMU.
// Lines of the machine's console are what the script prints.
func booting(t *testing.T, script string, flags ...string) *exec.Cmd {
	t.Helper()
	testneeds.NoGuest(t, "it has no shell")
	testneeds.Tool(t, "cpio", "cpio")
	testneeds.Tool(t, runtimeCompiler(t), "gcc-i686-linux-gnu")
	dir := t.TempDir()
	qemu := filepath.Join(dir, "qemu")
	qt.Assert(t, qt.IsNil(os.WriteFile(qemu, []byte("#!/bin/sh\n"+script), 0o755)))
	cmd := exec.CommandContext(t.Context(), "../boot", append([]string{"/bin/true"}, flags...)...)
	cmd.Dir = "selftest"
	cmd.Env = append(os.Environ(), "GOUSDT_GUEST="+runtime.GOARCH+"/6.12", "GUEST_KERNEL=/bin/true",
		"GUEST_INIT=/bin/true", "GUEST_QEMU="+qemu, "GUEST_LOG="+filepath.Join(dir, "log"),
		"GUEST_BOOT_TIME=1", "GOUSDT_X=1")
	return cmd
}

func runtimeCompiler(t *testing.T) string {
	t.Helper()
	testneeds.Only(t, "compilers of other machines have other names", "amd64")
	return "i686-linux-gnu-gcc"
}

const (
	bootedLine = "echo '[ 1.0] half a mess@gousdt-guest booted 6.12.1'\n"
	endedLine  = "echo 'without an end@gousdt-guest ended "
)

func TestVerdictIsTheGuests(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		flags        []string
		status       int
		says         string // a pattern
	}{
		{"passed", "echo SeaBIOS\n" + bootedLine + "echo '--- PASS: TestX'\n" + endedLine + "0'", nil,
			0, `\[ 1.0\] half a mess@gousdt-guest booted 6.12.1
--- PASS: TestX
without an end@gousdt-guest ended 0
`},
		{"failed", bootedLine + endedLine + "3'", nil, 3, "(?s).*ended 3\n"},
		{"nothing passed", bootedLine + endedLine + "0'", nil, 1, "(?s).*guest: no test passed\n"},
		{"nothing selected", bootedLine + endedLine + "0'", []string{"-test.run=X"}, 0, "(?s).*ended 0\n"},
		{"panic", bootedLine + "echo 'Kernel panic - not syncing: test'", nil, 1,
			"(?s).*the machine went off before the test had ended: Kernel panic - not syncing: test\n"},
		{"silent", "echo SeaBIOS; exec sleep 60", nil, 1,
			"(?s)SeaBIOS\n.*booted 2 times, and did not come to its first process within 1 s\n"},
		{"emulator", "echo 'could not load kernel' >&2; exit 1", nil, 1,
			"(?s).*could not load kernel\n.*booted 2 times.*"},
		{"carriage returns", bootedLine + "printf -- '--- PASS: TestX\\r\\n'\n" + endedLine + "0'", nil, 0,
			"(?s).*--- PASS: TestX\nwithout.*"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := booting(t, tt.script, tt.flags...)
			out, _ := cmd.CombinedOutput()
			qt.Check(t, qt.Equals(cmd.ProcessState.ExitCode(), tt.status))
			qt.Check(t, qt.Matches(string(out), tt.says))
		})
	}
}

// go test asks for the end of a test that runs too long.
func TestGuestThatHangsIsEnded(t *testing.T) {
	began := filepath.Join(t.TempDir(), "began")
	cmd := booting(t, bootedLine+"echo $$ >"+began+"; exec sleep 60")
	qt.Assert(t, qt.IsNil(cmd.Start()))
	testneeds.Await(t, 10*time.Second, "the machine is booted", func() bool {
		text, _ := os.ReadFile(began)
		return len(text) > 1
	})
	qt.Assert(t, qt.IsNil(cmd.Process.Signal(syscall.SIGQUIT)))
	start := time.Now()
	qt.Check(t, qt.IsNotNil(cmd.Wait()))
	qt.Check(t, qt.IsTrue(time.Since(start) < 30*time.Second))
}

func TestGuestLooksLikeTheCheckout(t *testing.T) {
	tree := t.TempDir()
	cmd := booting(t, `while [ "$1" != -initrd ]; do shift; done
		cd `+tree+` && cpio -id --quiet <"$2"`+"\n"+bootedLine+endedLine+"0'", "-test.v", "-test.run=X Y")
	cmd.Env = append(cmd.Env, "CI=true", "GOUSDT_TESTDATA=/home", "LANG=C")
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	for _, name := range []string{"init", "tmp", "src/internal/testdata/Makefile",
		"lib/x86_64-linux-gnu/libc.so.6", "lib64/ld-linux-x86-64.so.2", "usr/i686-linux-gnu/lib/libc.so.6",
		"src/internal/kernels/selftest/testdata/packed.txt", "src/internal/kernels/selftest/true"} {
		_, err := os.Stat(filepath.Join(tree, name))
		qt.Check(t, qt.IsNil(err))
	}
	arguments, err := os.ReadFile(filepath.Join(tree, "gousdt/arguments"))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(arguments), "/src/internal/kernels/selftest/true\x00-test.v\x00-test.run=X Y\x00"))
	environment, err := os.ReadFile(filepath.Join(tree, "gousdt/environment"))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(string(environment), "\x00GOUSDT_TESTDATA=/src/internal/testdata/build\x00"))
	qt.Check(t, qt.StringContains(string(environment), "\x00GOUSDT_X=1\x00"))
	qt.Check(t, qt.StringContains(string(environment), "\x00GOUSDT_GUEST=amd64/6.12\x00"))
	qt.Check(t, qt.Not(qt.StringContains(string(environment), "CI=")))
	qt.Check(t, qt.Not(qt.StringContains(string(environment), "/home")))
}

func TestKernelsAreChosen(t *testing.T) {
	testneeds.NoGuest(t, "it has no shell")
	for _, tt := range []struct{ flags, want string }{
		{"-only s390x", "s390x/6.1 s390x/6.12 s390x/newest"},
		{"-quick -only amd64", "amd64/5.10 amd64/newest"},
		{"-only 5.10", "amd64/5.10 arm64/5.10"},
		{"-only riscv64/6.12,amd64/6.1", "riscv64/6.12 amd64/6.1"},
		{"-only arm64/6.17", "arm64/6.17"},
		{"-only arm64=/boot/vmlinuz", "arm64=/boot/vmlinuz"},
		{"-quick", "amd64/5.10 amd64/newest"},
	} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "./run -list "+tt.flags).CombinedOutput()
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(string(out), tt.want+"\n"))
	}
	out, err := exec.CommandContext(t.Context(), "./run", "-list", "-only", "vax").CombinedOutput()
	qt.Check(t, qt.IsNotNil(err))
	qt.Check(t, qt.Matches(string(out), "kernels: -only vax: .*\n"))
}
