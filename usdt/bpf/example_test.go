// SPDX-License-Identifier: BSD-2-Clause

package bpf_test

import (
	"log"
	"os"

	"github.com/gousdt/gousdt/usdt/bpf"
)

// Write the header where a compiler finds it: clang -I include then has
// bpf/usdt.bpf.h.
func ExampleHeaders() {
	if err := os.CopyFS("include/bpf", bpf.Headers()); err != nil {
		log.Fatal(err)
	}
}
