// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"testing"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
)

// ProgramName names the program of some probes.
func ProgramName(probes ...[2]string) string {
	var sites []*Site
	for _, p := range probes {
		sites = append(sites, &Site{Site: usdt.Site{Site: elfnote.Site{Provider: p[0], Name: p[1]}}})
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

// AttachmentTo returns an attachment to nothing.
func AttachmentTo(path string, process proc.Process) *Attachment {
	return &Attachment{path: path, process: process}
}

// LinkCount returns how many links the attachment has.
func (a *Attachment) LinkCount() int { return len(a.links) }
