// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"debug/elf"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
)

func listOurs(path string) ([]site, error) {
	file, err := elfnote.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	kernel := file.Header().Machine
	if kernel == elf.EM_386 {
		kernel = elf.EM_X86_64
	}
	var sites []site
	for s, err := range file.Sites() {
		if err != nil {
			continue
		}
		found := site{Provider: s.Provider, Name: s.Name, Offset: s.Offset, Semaphore: s.SemaphoreOffset,
			Args: []argument{}}
		for _, arg := range argspec.Decode(nil, file, s.Location, s.Arguments) {
			found.Args = append(found.Args, ourArgument(&arg, kernel))
		}
		sites = append(sites, found)
	}
	return sites, nil
}

func ourArgument(arg *argspec.Arg, kernel elf.Machine) argument {
	where, err := arg.Encode(kernel)
	if err != nil {
		return argument{Kind: "none"}
	}
	return argument{Kind: arg.Kind.String(), Size: arg.Size, Signed: arg.Signed, Value: where.Value,
		Register: where.Register, Index: where.Index, Scale: where.Scale, Shift: where.Shift,
		IndexSize: arg.IndexSize, Address32: arg.Address32}
}
