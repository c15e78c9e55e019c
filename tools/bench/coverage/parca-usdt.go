// SPDX-License-Identifier: BSD-2-Clause

//go:build ignore

package main

import "github.com/parca-dev/usdt"

const module = "github.com/parca-dev/usdt"

// x86 has the offsets in struct pt_regs by its numbers, from RegRax on.
var x86 = [...]int16{80, 40, 88, 96, 104, 112, 32, 152, 72, 64, 56, 48, 24, 16, 8, 0, 128}

// offset of a register in struct pt_regs. Its Go code is for the host's
// machine.
func offset(id uint8) int16 {
	switch {
	case id == usdt.RegNone:
		return -1
	case id <= usdt.RegRip:
		return x86[id-usdt.RegRax]
	default:
		return 8 * int16(id-usdt.RegX0)
	}
}

func list(path string) ([]site, error) {
	probes, err := usdt.ParseProbesFromFile(path)
	if err != nil {
		return nil, err
	}
	var sites []site
	for _, p := range probes {
		s := site{Provider: p.Provider, Name: p.Name, Offset: p.Location, Semaphore: p.SemaphoreOffset}
		// With an error it leaves out the probe.
		if spec, err := usdt.ParseUSDTArguments(p.Arguments); err == nil {
			for _, arg := range spec.Args[:spec.Arg_cnt] {
				kind := [...]string{"constant", "register", "memory"}[arg.Arg_type]
				// Nothing depends on the sign of a floating point number.
				isSigned := arg.Arg_signed && !arg.Arg_is_float
				s.Args = append(s.Args, argument{Kind: kind, Size: (64 - int(arg.Arg_bitshift)) / 8,
					Signed: isSigned, Value: arg.Val_off, Register: offset(arg.Reg_id), Index: -1})
			}
		}
		sites = append(sites, s)
	}
	return sites, nil
}
