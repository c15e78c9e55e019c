// SPDX-License-Identifier: BSD-2-Clause

// Fire measures what a probe in a Go program costs while nobody traces it,
// beside calls of C. It speaks the language of serve.h.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gousdt/gousdt/tools/bench/peers/fire/c"
)

// ways are loops of their own: a call of a function value would cost more than
// what is measured.
var ways = map[string]func(n int){
	"loop": func(n int) {
		for i := range n {
			sink = i
		}
	},
	"guarded": func(n int) {
		for i := range n {
			sink = i
			if fireEnabled() {
				fire("/", i)
			}
		}
	},
	"bare": func(n int) {
		for i := range n {
			sink = i
			fire("/", i)
		}
	},
	"cgo": func(n int) {
		for i := range n {
			sink = i
			c.Empty()
		}
	},
	"sdt.h": func(n int) {
		for i := range n {
			sink = i
			c.Fire(i)
		}
	},
}

var sink int

// best returns the nanoseconds of the fastest of many short rounds.
func best(way func(n int), n int) float64 {
	const rounds = 200
	least := time.Hour
	for range rounds {
		start := time.Now()
		way(n)
		least = min(least, time.Since(start))
	}
	runtime.KeepAlive(sink)
	return float64(least) / float64(n)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		n, _ := strconv.Atoi(words[1])
		fmt.Printf("ok %f\n", best(ways[words[0]], n)-best(ways["loop"], n))
	}
}
