// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"fmt"
	"io"
	"os"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/internal/bpfobject"
)

// LoadCollectionSpec reads an object whose programs were compiled with the
// header usdt.bpf.h, that of libbpf or this module's. Objects made for libbpf
// 0.8 and newer need no change, also if "bpftool gen object" has linked them
// from several files. [NewManager] then prepares the
// collection:
//
//	spec, err := usdt.LoadCollectionSpec("probes.bpf.o")
//	mgr, err := usdt.NewManager(spec, nil)
//	coll, err := ebpf.NewCollectionWithOptions(spec, *mgr.CollectionOptions())
//	links, err := mgr.AttachSections(coll, 0, nil)
//
// It reads objects without USDT programs, too. The result differs from that of
// [ebpf.LoadCollectionSpec] in three ways:
//
//   - weak maps are maps like others,
//   - hidden functions are verified with what their callers pass, as libbpf
//     does,
//   - the variable LINUX_HAS_BPF_COOKIE, which libbpf's header declares, is
//     among CollectionSpec.Variables, where NewManager sets it.
func LoadCollectionSpec(path string) (*ebpf.CollectionSpec, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	spec, err := LoadCollectionSpecFromReader(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return spec, nil
}

// LoadCollectionSpecFromReader is [LoadCollectionSpec] for an object that is
// not a file, such as one that is embedded in the program:
//
//	//go:embed probes.bpf.o
//	var object []byte
//
//	spec, err := usdt.LoadCollectionSpecFromReader(bytes.NewReader(object))
func LoadCollectionSpecFromReader(r io.ReaderAt) (*ebpf.CollectionSpec, error) {
	return bpfobject.Load(r)
}
