// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// mapperVariable makes a test binary a mapper: "user nanoseconds directory".
const mapperVariable = "GOUSDT_TEST_MAPPER"

// Nobody is a user who has no processes on most hosts.
const Nobody = 65534

// mappedBytes is how much a mapper maps of each file: all code of those that
// tests write.
const mappedBytes = 8192

// StartMapper starts a process of another user that maps all files of a
// directory as code, and one of them anew each time that every has passed,
// unless that is 0. The test's TestMain must call [BeMapper].
func StartMapper(t testing.TB, user int, every time.Duration, dir string) *Process {
	t.Helper()
	testneeds.Root(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", mapperVariable, user, every, dir))
	p := StartCommand(t, command)
	p.must("pid") // fails if it has ended
	return p
}

// BeMapper does nothing but in a process that StartMapper has started.
func BeMapper() {
	if order := os.Getenv(mapperVariable); order != "" {
		fmt.Fprintln(os.Stderr, beMapper(order))
		os.Exit(1)
	}
}

// beMapper does not return unless it fails.
func beMapper(order string) error {
	var user int
	var every time.Duration
	var dir string
	if _, err := fmt.Sscan(order, &user, (*int64)(&every), &dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var file *os.File
	mapCode := func() ([]byte, error) {
		return unix.Mmap(int(file.Fd()), 0, mappedBytes, unix.PROT_READ|unix.PROT_EXEC,
			unix.MAP_PRIVATE)
	}
	var code []byte
	for _, entry := range entries {
		if file != nil {
			file.Close()
		}
		if file, err = os.Open(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
		if code, err = mapCode(); err != nil {
			return err
		}
	}
	if err := syscall.Setuid(user); err != nil {
		return err
	}
	// So that its files in proc belong to the user.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return err
	}
	go func() {
		for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
			fmt.Println("ok")
		}
		os.Exit(0)
	}()
	for every > 0 {
		time.Sleep(every)
		if err := unix.Munmap(code); err != nil {
			return err
		}
		if code, err = mapCode(); err != nil {
			return err
		}
	}
	select {}
}
