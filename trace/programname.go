// SPDX-License-Identifier: BSD-2-Clause

package trace

import "strings"

const (
	// maxProgramName is what the kernel keeps of a program's name
	// (BPF_OBJ_NAME_LEN without the terminator).
	maxProgramName = 15

	// shortProvider is what a provider is cut to where provider and probe do
	// not fit together: the probe's name says more.
	shortProvider = 5
)

// programName returns a name by which a system profiler, or bpftool, shows what
// a program is for: PROVIDER_PROBE, cut to what the kernel keeps.
func programName(sites []*Site) string {
	provider, name := sites[0].Provider, sites[0].Name
	for _, s := range sites[1:] {
		provider = commonPrefix(provider, s.Provider)
		name = commonPrefix(name, s.Name)
	}
	provider, name = strings.Trim(legalName(provider), "_"), strings.Trim(legalName(name), "_")
	if room := maxProgramName - len(name) - 1; len(provider) > room {
		provider = provider[:min(len(provider), max(room, shortProvider))]
	}
	full := strings.Trim(provider+"_"+name, "_")
	if full == "" {
		return "usdt"
	}
	return full[:min(len(full), maxProgramName)]
}

func commonPrefix(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

// legalName replaces what the kernel does not allow in a name: it keeps
// letters, digits and underscores.
func legalName(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9':
			return r
		default:
			return '_'
		}
	}, s)
}
