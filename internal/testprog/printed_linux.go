// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"bufio"
	"io"
	"os"
	"os/signal"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// Printed runs an example, and returns what it has printed. When it prints a
// line that begins with during, meet is called; "" is no line.
func Printed(t *testing.T, example func(), during string, meet func()) string {
	t.Helper()
	// The signal that ends an example must not end the test if it comes
	// late.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	defer signal.Stop(signals)

	stdout := os.Stdout
	read, write, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	defer read.Close()
	os.Stdout = write
	go func() {
		defer write.Close()
		example()
	}()
	var printed strings.Builder
	lines := bufio.NewReader(read)
	for met := false; ; {
		line, err := lines.ReadString('\n')
		printed.WriteString(line)
		if err == io.EOF {
			break
		}
		qt.Check(t, qt.IsNil(err))
		if !met && during != "" && strings.HasPrefix(line, during) {
			met = true
			meet()
		}
	}
	os.Stdout = stdout
	return printed.String()
}
