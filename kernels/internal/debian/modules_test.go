// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// module returns a module of a kernel with nothing in it but what it says of
// itself.
func module(t *testing.T, info string) []byte {
	t.Helper()
	names := "\x00.modinfo\x00"
	var header elf.Header64
	size := binary.Size(header)
	header.Ident = [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64),
		byte(elf.ELFDATA2MSB), byte(elf.EV_CURRENT)}
	header.Type, header.Machine, header.Version = uint16(elf.ET_REL), uint16(elf.EM_S390),
		uint32(elf.EV_CURRENT)
	header.Ehsize, header.Shentsize, header.Shnum = uint16(size),
		uint16(binary.Size(elf.Section64{})), 3
	header.Shoff, header.Shstrndx = uint64(size+len(names)+len(info)), 2
	text := new(bytes.Buffer)
	for _, part := range []any{
		header, []byte(names), []byte(info), elf.Section64{},
		elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: uint64(size + len(names)),
			Size: uint64(len(info))},
		elf.Section64{Name: 0, Type: uint32(elf.SHT_STRTAB), Off: uint64(size),
			Size: uint64(len(names))},
	} {
		qt.Assert(t, qt.IsNil(binary.Write(text, binary.BigEndian, part)))
	}
	return text.Bytes()
}

// unpacked writes files as of an unpacked package of a kernel.
func unpacked(t *testing.T, files map[string][]byte) (tree string) {
	t.Helper()
	tree = t.TempDir()
	files["boot/vmlinuz-6.1"] = []byte("a kernel")
	files["boot/config-6.1"] = []byte("CONFIG_UPROBES=y")
	for name, data := range files {
		file := filepath.Join(tree, name)
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(file), 0o755)))
		qt.Assert(t, qt.IsNil(os.WriteFile(file, data, 0o644)))
	}
	return tree
}

const fileSystems = "usr/lib/modules/6.1/kernel/fs/"

func TestKernelIsTakenWithTheModulesOfGuests(t *testing.T) {
	tree := unpacked(t, map[string][]byte{
		fileSystems + "overlayfs/overlay.ko": module(t,
			"license=GPL\x00depends=file-handles,crc\x00name=overlay\x00"),
		fileSystems + "file-handles.ko": module(t, "depends=crc\x00"),
		fileSystems + "crc.ko":          module(t, "depends=\x00"),
		fileSystems + "fuse/fuse.ko":    module(t, "license=GPL\x00"),
		fileSystems + "xfs/xfs.ko":      module(t, "depends=crc\x00"),
	})
	c := &Cache{Dir: t.TempDir()}
	image := c.image("s390x", "linux-image-a_6.1.9-1")
	qt.Assert(t, qt.IsFalse(image.complete()))
	qt.Assert(t, qt.IsNil(takeKernel(context.Background(), tree, filepath.Dir(image.Path))))

	image = c.image("s390x", "linux-image-a_6.1.9-1")
	qt.Assert(t, qt.IsTrue(image.complete()))
	data, err := os.ReadFile(image.Path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(data), "a kernel"))
	var names []string
	for _, module := range image.Modules {
		names = append(names, filepath.Base(module))
	}
	qt.Check(t, qt.DeepEquals(names, []string{"00-fuse.ko", "01-crc.ko", "02-file_handles.ko",
		"03-overlay.ko"}))
}

func TestCompressedModulesAreUncompressed(t *testing.T) {
	xz := testneeds.Tool(t, "xz", "xz-utils")
	plain := module(t, "license=GPL\x00")
	compress := exec.Command(xz, "--stdout")
	compress.Stdin = bytes.NewReader(plain)
	compressed, err := compress.Output()
	qt.Assert(t, qt.IsNil(err))
	tree := unpacked(t, map[string][]byte{fileSystems + "fuse/fuse.ko.xz": compressed})
	target := t.TempDir()
	qt.Assert(t, qt.IsNil(takeKernel(context.Background(), tree, target)))
	data, err := os.ReadFile(filepath.Join(target, modulesDir, "00-fuse.ko"))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(data, plain))
}

func TestMalformedModulesAreErrors(t *testing.T) {
	for want, data := range map[string][]byte{
		"module fuse: .*bad magic number.*": []byte("not a module, but a text"),
		"module fuse: it depends on cuse: the package does not have it": module(t,
			"depends=cuse\x00"),
		"module fuse: it depends on fuse: it depends on itself": module(t,
			"depends=fuse\x00"),
	} {
		tree := unpacked(t, map[string][]byte{fileSystems + "fuse/fuse.ko": data})
		qt.Check(t, qt.ErrorMatches(takeKernel(context.Background(), tree, t.TempDir()), want))
	}
	qt.Check(t, qt.ErrorMatches(takeKernel(context.Background(), t.TempDir(), t.TempDir()),
		"it has no kernel"))
}

func TestModulesAreInAPackageOfTheirOwn(t *testing.T) {
	qt.Check(t, qt.DeepEquals(kernelPackages("linux-image-6.12.107+deb13-cloud-amd64-unsigned"),
		[]string{"linux-image-6.12.107+deb13-cloud-amd64-unsigned"}))
	qt.Check(t, qt.DeepEquals(kernelPackages("linux-binary-7.2.13+deb14-cloud-amd64"),
		[]string{"linux-binary-7.2.13+deb14-cloud-amd64",
			"linux-modules-7.2.13+deb14-cloud-amd64"}))
}
