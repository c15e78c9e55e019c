// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/cmd/internal/testschema"
)

func TestJSONIsAsTheSchemaSays(t *testing.T) {
	schema := testschema.Load(t, "usdtlist")
	for _, args := range [][]string{
		{"testdata/odd"},
		{"testdata/shop-s390x", "testdata/missing", "testdata/none"},
		{"testdata/shop-amd64.debug", "testdata/shop.o"},
		{"-r", "testdata"},
		{"-p", strconv.Itoa(os.Getpid())},
		{"-a"},
	} {
		var stdout bytes.Buffer
		run(append([]string{"--json"}, args...), &stdout, io.Discard)
		qt.Assert(t, qt.IsTrue(stdout.Len() > 0), qt.Commentf("%v", args))
		schema.Check(t, stdout.Bytes())
	}
}
