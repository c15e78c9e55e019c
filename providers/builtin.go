// SPDX-License-Identifier: BSD-2-Clause

package providers

import (
	"embed"
	"strings"
	"sync"
)

//go:embed definitions
var builtin embed.FS

// builtinFile is one of the files that this package has. It is parsed when it
// is asked: to parse all of them takes a millisecond, which is a third of what
// a short command takes.
type builtinFile struct {
	name   string
	source []byte
	parsed func() *Definitions
}

// builtinFiles are the files that this package has.
var builtinFiles = sync.OnceValue(func() []*builtinFile {
	entries, err := builtin.ReadDir("definitions")
	if err != nil {
		panic(err)
	}
	var files []*builtinFile
	for _, entry := range entries {
		source, err := builtin.ReadFile("definitions/" + entry.Name())
		if err != nil {
			panic(err)
		}
		file := &builtinFile{name: entry.Name(), source: source}
		file.parsed = sync.OnceValue(file.parse)
		files = append(files, file)
	}
	return files
})

func (f *builtinFile) parse() *Definitions {
	d := new(Definitions)
	if err := d.Parse(f.name, f.source); err != nil {
		panic(err) // a test parses them
	}
	return d
}

// providers returns the providers that the file says something of, without
// parsing it: each in a line of its own, and no pattern of providers.
func (f *builtinFile) providers() []string {
	var names []string
	for line := range strings.Lines(string(f.source)) {
		if name, ok := strings.CutPrefix(line, "provider "); ok {
			name, _, _ = strings.Cut(name, " ")
			names = append(names, name)
		} else if pattern, ok := strings.CutPrefix(line, "#pragma gousdt fires "); ok {
			name, _, _ = strings.Cut(pattern, ":")
			names = append(names, name)
		}
	}
	return names
}

// builtinByProvider has the file of each provider.
var builtinByProvider = sync.OnceValue(func() map[string]*builtinFile {
	files := make(map[string]*builtinFile)
	for _, file := range builtinFiles() {
		for _, provider := range file.providers() {
			files[provider] = file
		}
	}
	return files
})

// builtinOf returns the definitions of a file that has a provider.
func builtinOf(provider string) *Definitions {
	if file, ok := builtinByProvider()[provider]; ok {
		return file.parsed()
	}
	return new(Definitions)
}
