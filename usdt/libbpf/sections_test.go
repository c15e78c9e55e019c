// SPDX-License-Identifier: BSD-2-Clause

package libbpf

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"
)

func TestSplitSection(t *testing.T) {
	for _, tc := range []struct{ at, path, provider, name string }{
		{"/usr/bin/python3.11:python:function__entry", "/usr/bin/python3.11", "python",
			"function__entry"},
		{"libstdc++.so.6:libstdcxx:throw", "libstdc++.so.6", "libstdcxx", "throw"},
		{"./prog:crate::module:start", "./prog", "crate::module", "start"},
		{"./prog:crate::module:a::b", "./prog", "crate::module", "a::b"},
	} {
		path, provider, name, err := splitSection(tc.at)
		qt.Check(t, qt.IsNil(err), qt.Commentf(tc.at))
		qt.Check(t, qt.DeepEquals([]string{path, provider, name},
			[]string{tc.path, tc.provider, tc.name}))
	}
	for _, at := range []string{"", "path", "path:provider", ":provider:name", "path::name",
		"path:provider:"} {
		_, _, _, err := splitSection(at)
		qt.Check(t, qt.ErrorMatches(err, `section usdt/.*: want usdt/PATH:PROVIDER:NAME`),
			qt.Commentf(at))
	}
}

func TestProgramsOfGeneratedStructs(t *testing.T) {
	type generatedPrograms struct {
		First  *ebpf.Program `ebpf:"first"`
		Second *ebpf.Program `ebpf:"second"`
	}
	type generatedMaps struct {
		Events *ebpf.Map `ebpf:"events"`
	}
	type generatedObjects struct {
		generatedPrograms
		generatedMaps
		Other int
	}
	first := new(ebpf.Program)

	got, err := programsOf(&generatedObjects{generatedPrograms: generatedPrograms{First: first}})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(got, 1))
	qt.Assert(t, qt.Equals(got["first"], first))

	got, err = programsOf(&ebpf.Collection{Programs: map[string]*ebpf.Program{"first": first}})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(got["first"], first))

	for _, wrong := range []any{nil, 3, "x", generatedObjects{}, (*generatedObjects)(nil),
		(*ebpf.Collection)(nil)} {
		_, err := programsOf(wrong)
		qt.Check(t, qt.ErrorMatches(err, `programs are taken from .*`), qt.Commentf("%T", wrong))
	}
}

func TestFindFile(t *testing.T) {
	path, err := FindFile("sh")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Matches(path, "/.*/sh"))
	path, err = FindFile("./none")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(path, "./none"))
	_, err = FindFile("libnowhere.so.9")
	qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))
	qt.Check(t, qt.ErrorMatches(err, `.*libnowhere\.so\.9: no such library.*`))
}
