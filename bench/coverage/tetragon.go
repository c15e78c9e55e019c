// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"runtime/debug"

	"github.com/cilium/tetragon/pkg/elf"
)

func tetragonVersion() string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == "github.com/cilium/tetragon" {
			return dependency.Version
		}
	}
	return ""
}

// listTetragon lists a file as tetragon does. Its Go code is for the host's
// machine. Type NONE is what it leaves if it could not parse an argument.
func listTetragon(path string) ([]site, error) {
	file, err := elf.OpenSafeELFFile(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	targets, err := file.UsdtTargets()
	if err != nil {
		return nil, err
	}
	var sites []site
	for _, t := range targets {
		s := site{Provider: t.Spec.Provider, Name: t.Spec.Name, Offset: t.IpRel, Semaphore: t.SemaOff,
			Args: []argument{}}
		for _, arg := range t.Spec.Args[:t.Spec.ArgsCnt] {
			a := argument{Kind: "none", Size: arg.Size, Signed: arg.Signed, Value: arg.ValOff,
				Register: -1, Index: -1}
			switch arg.Type {
			case elf.USDT_ARG_TYPE_CONST:
				a.Kind = "constant"
			case elf.USDT_ARG_TYPE_REG:
				a.Kind, a.Register = "register", int16(arg.RegOff)
			case elf.USDT_ARG_TYPE_REG_DEREF:
				a.Kind, a.Register = "memory", int16(arg.RegOff)
			case elf.USDT_ARG_TYPE_SIB:
				a.Kind, a.Register = "memory", int16(arg.RegOff)
				a.Index, a.Scale = int16(arg.RegIdxOff), arg.Scale
			}
			s.Args = append(s.Args, a)
		}
		sites = append(sites, s)
	}
	return sites, nil
}
