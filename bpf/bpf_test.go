// SPDX-License-Identifier: BSD-2-Clause

package bpf_test

import (
	"os"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/gousdt/gousdt/bpf"
)

func TestHeaderIsTheFile(t *testing.T) {
	want, err := os.ReadFile("usdt.bpf.h")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(bpf.Header(), string(want)))
}
