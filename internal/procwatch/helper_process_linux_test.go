// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
)

func helperMain() {
	fmt.Println("ok")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Split(input.Text(), "\t")
		command, ok := helperCommands[words[0]]
		if !ok {
			fmt.Println("no such command:", words[0])
			continue
		}
		if words[0] == "leaderless" {
			// The thread that ends takes with it its right to run Go code: on a
			// single CPU, no other thread has one.
			runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
			go leaderless(input)
			unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
		}
		result, err := command(words[1:])
		if err != nil {
			result = err.Error()
		} else {
			result = "ok " + result
		}
		fmt.Println(strings.ReplaceAll(result, "\n", "; "))
	}
}

// leaderless waits until the first thread has ended, and then for the end of
// input.
func leaderless(input *bufio.Scanner) {
	for {
		s, err := procfs.ReadStat("/proc", os.Getpid(), make([]byte, procfs.MaxStat))
		if err == nil && s.State == 'Z' {
			break
		}
		runtime.Gosched()
	}
	fmt.Println("ok")
	for input.Scan() {
	}
	os.Exit(0)
}

func mapExecutable(fd int) (string, error) {
	memory, err := unix.Mmap(fd, 0, 0x2000, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	lastMapped = memory
	return "", err
}
