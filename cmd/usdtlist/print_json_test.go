// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
)

// A reader of the JSON document computes values from these fields.
func TestJSONHasAllPartsOfALocation(t *testing.T) {
	for _, test := range []struct {
		machine    elf.Machine
		text, want string
	}{
		{elf.EM_AARCH64, "8@[x2, w9, uxtw 3]",
			`"base":"x2","index":"w9","index_extension":"uxtw","scale":8,"displacement":0,"address_32":false`},
		{elf.EM_AARCH64, "8@[x2, w9, sxtw]",
			`"base":"x2","index":"w9","index_extension":"sxtw","scale":1,"displacement":0,"address_32":false`},
		{elf.EM_AARCH64, "8@[x2, x9]",
			`"base":"x2","index":"x9","index_extension":null,"scale":1,"displacement":0,"address_32":false`},
		{elf.EM_386, "12@-60(%ebp)",
			`"kind":"bytes","size":12,"signed":false,"float":false,"text":"12 bytes @ [ebp-60]",` +
				`"base":"ebp","index":null,"index_extension":null,"scale":1,"displacement":-60,"address_32":true`},
		{elf.EM_386, "-8@%eax",
			`"text":"i64 @ edx:eax","register":"eax","high":"edx","shift":0`},
	} {
		var out bytes.Buffer
		p := newJSONPrinter(bufio.NewWriter(&out))
		p.argument(&argspec.Parse(test.machine, test.text)[0])
		p.flush()
		qt.Assert(t, qt.IsNil(p.out.Flush()))
		qt.Check(t, qt.IsTrue(strings.Contains(out.String(), test.want)),
			qt.Commentf("%s", out.String()))
	}
}
