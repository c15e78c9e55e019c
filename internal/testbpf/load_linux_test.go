// SPDX-License-Identifier: BSD-2-Clause

package testbpf_test

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// The committed objects load on this kernel in each mode.
func TestProgramsLoad(t *testing.T) {
	testprog.RequireBPF(t)
	for name, loadSpec := range map[string]func() (*ebpf.CollectionSpec, error){
		"args":   testbpf.LoadArgs,
		"counts": testbpf.LoadCounts,
	} {
		for _, mode := range []usdt.Mode{usdt.ModeMulti, usdt.ModeSingle, usdt.ModeSingleIPMap} {
			if _, err := mode.Resolve(); errors.Is(err, errors.ErrUnsupported) {
				continue
			}
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				spec, err := loadSpec()
				qt.Assert(t, qt.IsNil(err))
				mgr, err := usdt.NewManager(spec, &usdt.ManagerOptions{Mode: mode})
				qt.Assert(t, qt.IsNil(err))
				defer mgr.Close()
				collection, err := ebpf.NewCollectionWithOptions(spec, *mgr.CollectionOptions())
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
