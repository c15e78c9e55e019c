// SPDX-License-Identifier: BSD-2-Clause

// Package symbols finds the symbols that the argument strings of a file name,
// as in "8@counter(%rip)": in the file itself, or in its separate debug file
// where the file was stripped of them.
package symbols

import (
	"errors"
	"iter"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
)

// Resolver finds symbols for one file.
type Resolver struct {
	// Missing is the last symbol asked for that is nowhere, or "".
	Missing string

	file  *elfnote.File
	debug *elfnote.File // the one asked for, or opened when the file itself lacks a symbol
	tried bool          // whether there is a debug file is known
}

// New returns a Resolver, which has to be closed. The debug file, if one is
// given, must belong to the file: errors are those of elfnote's OpenDebugFile.
func New(file *elfnote.File, debugPath string) (*Resolver, error) {
	r := &Resolver{file: file}
	if debugPath != "" {
		debug, err := file.OpenDebugFile(debugPath)
		if err != nil {
			return nil, err
		}
		r.debug, r.tried = debug, true
	}
	return r, nil
}

// Close closes the debug file.
func (r *Resolver) Close() {
	if r.debug != nil {
		r.debug.Close()
	}
}

// Target returns what argument strings of the file refer to, but for the
// Location.
func (r *Resolver) Target() argspec.Target {
	return argspec.Target{
		Machine:  r.file.Machine(),
		Class:    r.file.Class(),
		Absolute: r.file.Kind() == elfnote.Executable,
		Symbol:   r.symbol,
		PLTGOT:   r.file.PLTGOT,
	}
}

// maxFound bounds the arguments that Find looks at, and the symbols. More are
// found one by one.
const maxFound = 1 << 19

// Find finds all symbols that argument strings name at once, which takes far
// less time than one by one.
func (r *Resolver) Find(strings iter.Seq[string]) {
	var names []string
	target := r.Target()
	target.Symbol = func(name string) (uint64, error) {
		if len(names) < maxFound {
			names = append(names, name)
		}
		return 0, nil
	}
	target.PLTGOT = func() (uint64, error) { return 0, nil }
	var args []argspec.Arg
	count := 0
	for text := range strings {
		if !mayName(text) {
			continue
		}
		args = argspec.AppendParse(args[:0], &target, text)
		if count += len(args); count >= maxFound {
			break
		}
	}
	if len(names) == 0 {
		return
	}

	r.file.FindSymbols(names)
	missing := names[:0]
	for _, name := range names {
		if _, err := r.file.Symbol(name); errors.Is(err, elfnote.ErrSymbolNotFound) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 && r.openDebug() {
		r.debug.FindSymbols(missing)
	}
}

// mayName tells whether there may be a symbol in an argument string, far faster
// than by parsing it: a word begins with a letter where there is no percent
// sign, which registers of x86 have.
func mayName(text string) bool {
	before := byte(0)
	for i := range len(text) {
		c := text[i]
		if isLetter(c) && before != '%' && !isLetter(before) && (before < '0' || before > '9') {
			return true
		}
		before = c
	}
	return false
}

// isLetter tells what a symbol may begin with.
func isLetter(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_' || c == '.' || c >= 0x80
}

// symbol looks in the file, and then in its debug file.
func (r *Resolver) symbol(name string) (uint64, error) {
	address, err := r.file.Symbol(name)
	if !errors.Is(err, elfnote.ErrSymbolNotFound) {
		return address, err
	}
	if r.openDebug() {
		return r.debug.Symbol(name)
	}
	r.Missing = name
	return 0, err
}

// openDebug tells whether there is a debug file. One that is not installed or
// unfit is no reason to fail: the argument says which symbol is missing.
func (r *Resolver) openDebug() bool {
	if !r.tried {
		r.tried = true
		r.debug, _ = r.file.OpenDebugFile("")
	}
	return r.debug != nil
}
