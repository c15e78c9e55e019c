// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
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
