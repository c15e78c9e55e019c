// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"io"
	"os"
	"regexp"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// Examples that end print the output that their comments show.
func TestExamples(t *testing.T) {
	testprog.RequireBPF(t)
	testprog.TakeTurn(t, testprog.SystemSoftware)
	const python = "/usr/bin/python3"
	file, err := elfnote.Open(python)
	if err != nil {
		testneeds.Missing(t, "needs %s with probes (Debian: python3): %v", python, err)
	}
	listing, err := file.Probes(elfnote.Exact("python", "import__find__load__start"))
	file.Close()
	qt.Assert(t, qt.IsNil(err))
	if len(listing.Probes) == 0 {
		testneeds.Missing(t, "needs %s with probes (Debian: python3)", python)
	}
	for _, test := range []struct {
		name    string
		example func()
		want    string
	}{
		{"Open", ExampleOpen, `(python:import__find__load__start "colorsys"\n)+`},
		{"Attachment_Skipped", ExampleAttachment_Skipped, `\d+ sites are watched, 0 are skipped\n`},
		{"NewAggregator", ExampleNewAggregator,
			`([\w.]+ \d+\n)*colorsys 1\n([\w.]+ \d+\n)*0 imports of further modules\n`},
		{"Latency", ExampleLatency, `\d+ imports, [\d.]+.?s on average, [\d.]+.?s at most\n`},
		{"Latency_spans", ExampleLatency_spans, `("colorsys" [\d.]+.?s\n)+`},
	} {
		t.Run(test.name, func(t *testing.T) {
			testprog.LeakCheck(t)
			got := printed(t, test.example)
			qt.Check(t, qt.IsTrue(regexp.MustCompile("^"+test.want+"$").MatchString(got)),
				qt.Commentf("%s", got))
		})
	}
}

func printed(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout }()
	text := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(r)
		text <- all
	}()
	f()
	w.Close()
	return string(<-text)
}
