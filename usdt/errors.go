// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/suggest"
)

// A NotFoundError says that a file has none of the probes asked for.
type NotFoundError struct {
	Nearest []string // up to three probes of the file, PROVIDER:NAME, that are spelled most alike

	path     string
	patterns []elfnote.Pattern // none if the file has no probes at all
}

func (e *NotFoundError) Error() string {
	if len(e.patterns) == 0 {
		return e.path + ": the file has no USDT probes"
	}
	var texts []string
	for _, pattern := range e.patterns {
		texts = append(texts, pattern.String())
	}
	return e.path + ": " + suggest.NoMatch(strings.Join(texts, " or "), "", e.Nearest)
}

// Why a site is refused before the kernel is asked.
var (
	errUnsafeNop = errors.New("a five-byte nop, which Linux 6.18 to 7.1 replaces by a call that " +
		"overwrites the program's red zone: build the program with a one-byte nop, or use another kernel")
	errPrefixedNop = errors.New("a nop with a segment or lock prefix, at which the kernel refuses a " +
		"breakpoint: build the program with a one-byte nop")
)

// notNop returns the error for a site that does not hold a nop. A breakpoint
// there could land inside another instruction and kill the traced program.
func notNop(code []byte) error {
	if len(code) == 0 {
		return errors.New("the file has no machine code there")
	}
	return fmt.Errorf("no nop there but % x (is the file damaged, or another version than its notes?)",
		code[:min(len(code), 8)])
}

// errAddressInUse means that in ModeSingleIPMap an address would need two
// specs: the same site is attached twice with different cookies, or the sites
// of two programs are linked to the same address.
var errAddressInUse = errors.New("attached with other arguments or another cookie already; without " +
	"BPF cookies (Linux 5.15) an address can be attached once per Manager")

var errNoProgram = errors.New("there is no program to attach: was it loaded?")
