// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"testing"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/usdt"
)

// ProgramName names the program of some probes.
func ProgramName(probes ...Probe) string {
	var sites []*Site
	for _, p := range probes {
		sites = append(sites, &Site{Site: usdt.Site{Site: elfnote.Site{Provider: p.Provider, Name: p.Name}}})
	}
	return programName(sites)
}

// WithoutProcessorID has sessions of a test do as on a kernel that does not
// tell programs their processor.
func WithoutProcessorID(t testing.TB) {
	before := hasProcessorID
	hasProcessorID = func() (bool, error) { return false, nil }
	t.Cleanup(func() { hasProcessorID = before })
}
