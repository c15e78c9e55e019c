// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"os"
	"regexp"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

func TestDemoListsAttachesAndPrintsTheArguments(t *testing.T) {
	testprog.RequireBPF(t)
	testprog.Path(t, "demo") // skips where it cannot be built
	testneeds.Tool(t, "go", "golang-go")
	testprog.LeakCheck(t)
	var out bytes.Buffer
	qt.Assert(t, qt.IsNil(run(t.Context(), &out, 4)))
	t.Log(out.String())

	qt.Check(t, qt.StringContains(out.String(), "gousdt_demo"))
	sales := regexp.MustCompile(`(?m)^pid \d+  sale  (.*)$`).FindAllStringSubmatch(out.String(), -1)
	qt.Assert(t, qt.HasLen(sales, 4))
	// The demo attaches to a running program: its first sale may be any.
	articles := map[string]string{
		`name="espresso"  pieces=2  price=4.40`:       `name="croissant"  pieces=3  price=5.70`,
		`name="croissant"  pieces=3  price=5.70`:      `name="returned cup"  pieces=-1  price=-0.50`,
		`name="returned cup"  pieces=-1  price=-0.50`: `name="espresso"  pieces=2  price=4.40`,
	}
	for i, sale := range sales[1:] {
		qt.Check(t, qt.Equals(sale[1], articles[sales[i][1]]))
	}
}

func TestMissingPrivilegeIsExplained(t *testing.T) {
	text := needs(&usdt.PermissionError{Op: "load a program", Err: os.ErrPermission})
	for _, part := range []string{"load a program", "make demo", "CAP_BPF", "CAP_PERFMON"} {
		qt.Check(t, qt.StringContains(text, part))
	}
}
