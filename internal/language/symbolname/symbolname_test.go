// SPDX-License-Identifier: BSD-2-Clause

package symbolname

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestFunctionsAreNamedAsInTheSource(t *testing.T) {
	for _, test := range []struct{ symbol, want string }{
		{"exec_simple_query", "exec_simple_query"},
		{"", ""},
		{"_Z7throweri", "thrower"},
		{"_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back"},
		{"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"},
		{"_RNvCs1234_7mycrate3foo", "mycrate::foo"},
		{"_Z", "_Z"},
		{"_ZN\xff", "_ZN\xff"},
		{"_Z" + strings.Repeat("P", 5000), "_Z" + strings.Repeat("P", MaxLength-5) + "..."},
	} {
		qt.Check(t, qt.Equals(Readable(test.symbol), test.want), qt.Commentf("%.100q", test.symbol))
	}
}

func TestTypesAreNamedAsInTheSource(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"St13runtime_error", "std::runtime_error"},
		{"i", "int"},
		{"*N12_GLOBAL__N_15localE", "(anonymous namespace)::local"},
		{"St6vectorIiSaIiEE", "std::vector<int, std::allocator<int> >"},
		{"", UnknownType},
		{"/etc/passwd", UnknownType},
		{"refused for customer 17", UnknownType},
		{"4 cat", UnknownType},
		{"async", UnknownType},
		{strings.Repeat("P", 5000), strings.Repeat("P", 5000)},
	} {
		qt.Check(t, qt.Equals(ReadableType(test.name, true), test.want), qt.Commentf("%.100q", test.name))
	}
	qt.Check(t, qt.Equals(ReadableType("N3foo3ba", false), "N3foo3ba"))
	qt.Check(t, qt.Equals(ReadableType("refused for", false), UnknownType))
}

// Whatever a file's symbols are named, names stay short and nothing panics.
func FuzzReadable(f *testing.F) {
	for _, seed := range []string{"_Z7throweri", "_ZNSt6vectorIiSaIiEE9push_backERKi",
		"_RNvCs1234_7mycrate3foo", "_ZN1aS_S_S_E"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, symbol string) {
		if got := Readable(symbol); len(got) > 2<<maxReadable {
			t.Fatalf("%q became %d bytes", symbol, len(got))
		}
		if got := ReadableType(symbol, true); len(got) > max(2<<maxReadable, len(symbol)) {
			t.Fatalf("%q became %d bytes as a type", symbol, len(got))
		}
	})
}
