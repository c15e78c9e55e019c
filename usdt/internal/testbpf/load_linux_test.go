// SPDX-License-Identifier: BSD-2-Clause

package testbpf_test

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/go-quicktest/qt"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt/internal/testbpf"
)

// Uprobes can be sleepable since Linux 6.0.
const linux6_0 = 6 << 16

// The committed objects load on whatever kernel this is, also as one without
// cookies needs them.
func TestProgramsLoad(t *testing.T) {
	testprog.RequireBPF(t)
	kernel, err := features.LinuxVersionCode()
	qt.Assert(t, qt.IsNil(err))
	hasCookie := features.HaveProgramHelper(ebpf.Kprobe, asm.FnGetAttachCookie) == nil
	for name, loadSpec := range map[string]func() (*ebpf.CollectionSpec, error){
		"args":      testbpf.LoadArgs,
		"counts":    testbpf.LoadCounts,
		"sections":  testbpf.LoadSections,
		"sleepable": testbpf.LoadSleepable,
		"strings":   testbpf.LoadStrings,
	} {
		for _, cookie := range []bool{true, false} {
			if cookie && !hasCookie {
				continue
			}
			t.Run(name, func(t *testing.T) {
				spec, err := loadSpec()
				qt.Assert(t, qt.IsNil(err))
				qt.Assert(t, qt.IsNil(spec.Variables["__bpf_usdt_has_cookie"].Set(cookie)))
				collection, err := ebpf.NewCollection(spec)
				if name == "sleepable" && kernel < linux6_0 {
					qt.Assert(t, qt.IsNotNil(err))
					return
				}
				var verifier *ebpf.VerifierError
				if errors.As(err, &verifier) {
					t.Fatalf("%+v", verifier)
				}
				qt.Assert(t, qt.IsNil(err))
				collection.Close()
			})
		}
	}
}
