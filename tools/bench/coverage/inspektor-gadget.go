// SPDX-License-Identifier: BSD-2-Clause

//go:build ignore

package main

import (
	_ "unsafe"

	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/uprobetracer"

	"github.com/gousdt/gousdt/elfnote"
)

const module = "github.com/inspektor-gadget/inspektor-gadget"

type attachInfo struct{ offset, semaphore uint64 }

//go:linkname getUsdtInfo github.com/inspektor-gadget/inspektor-gadget/pkg/uprobetracer.getUsdtInfo
func getUsdtInfo(path, symbol string) (*attachInfo, error)

// It finds one site of a probe by its name, so the names are from elsewhere.
func list(path string) ([]site, error) {
	var sites []site
	seen := map[string]bool{"": true}
	names := [][2]string{{}} // for this one it walks all notes
	if file, err := elfnote.Open(path); err == nil {
		defer file.Close()
		for s, err := range file.Sites() {
			if name := s.Provider + ":" + s.Name; err == nil && !seen[name] {
				seen[name] = true
				names = append(names, [2]string{s.Provider, s.Name})
			}
		}
	}
	for _, n := range names {
		if info, err := getUsdtInfo(path, n[0]+":"+n[1]); err == nil {
			sites = append(sites, site{Provider: n[0], Name: n[1],
				Offset: info.offset, Semaphore: info.semaphore})
		}
	}
	return sites, nil
}
