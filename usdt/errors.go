// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/elffile"
)

// A NotFoundError says that a file has none of the probes asked for.
type NotFoundError struct {
	Patterns []elfnote.Pattern // none if the file has no probes at all
	Probes   []elfnote.Site    // the names of those that the file has: the first 10,000

	path string
}

func (e *NotFoundError) Error() string {
	if len(e.Patterns) == 0 {
		return e.path + ": the file has no USDT probes"
	}
	var texts []string
	for _, pattern := range e.Patterns {
		texts = append(texts, pattern.String())
	}
	return e.path + ": no probe matches " + strings.Join(texts, " or ")
}

// A SiteError says why one site cannot be attached.
type SiteError struct {
	elfnote.Site        // with no more than the names if the note is malformed
	Err          error  // why; it wraps the error of the kernel or of the file
	path         string // of the file
}

func (e *SiteError) Error() string {
	text := fmt.Sprint(e.Err)
	if _, malformed := e.Err.(*elffile.NoteError); !malformed { // which names the probe
		text = fmt.Sprintf("probe %s:%s at %#x: %s", elffile.ShortName(e.Provider),
			elffile.ShortName(e.Name), e.Location, text)
	}
	if e.path == "" { // the error of another package
		return text
	}
	return e.path + ": " + text
}

func (e *SiteError) Unwrap() error { return e.Err }

// A LimitError says that there is no room for an attachment: in a map of the
// Manager, or by the MaxSites of a target, or by the limits of a watch. Nothing
// was attached. Set the option to InUse+Needed or more.
type LimitError struct {
	Limit    string // what is full: "specs", "addresses" or "sites", for example
	Option   string // what to set: "ManagerOptions.MaxSpecs" or "Limits.Sites", for example
	Capacity int    // what there is room for
	InUse    int    // taken before the attachment
	Needed   int    // by the attachment
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("there is room for %d %s, %d are in use, and %d more are needed: set %s to %d or more",
		e.Capacity, e.Limit, e.InUse, e.Needed, e.Option, e.InUse+e.Needed)
}

// tooMany returns an error for a file with more than its MaxSites allow.
func (s *Selection) tooMany(what string, limit, needed int) error {
	return fmt.Errorf("%s: %w", s.Name(), elffile.TooLarge(
		&LimitError{Limit: what, Option: "Target.MaxSites", Capacity: limit, Needed: needed}))
}

// explain adds to an error what was tried. An error about a missing privilege
// becomes an [attaching.PermissionError].
func explain(op string, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return &attaching.PermissionError{Op: op, Err: err}
	}
	return fmt.Errorf("%s: %w", op, err)
}

// ErrNotStarted means that a process has not mapped the file as a program does
// that has started, and that the semaphore of a site would be miscounted.
// Attach again later. A watch does so.
var ErrNotStarted = errors.New("the process has not mapped the file as a program does that has " +
	"started, and so the kernel would count its semaphore in the wrong segment: attach again later")
