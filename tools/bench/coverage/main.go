// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

// Coverage compares what Go projects make of the same USDT notes and argument
// strings: the files of this machine, by readelf, and the conformance vectors
// of internal/testdata/vectors.
//
//	make -C tools/bench coverage                 writes the table in docs/comparison.md
//	make -C tools/bench coverage OTHERS=DIR      the same, with the drivers in DIR
//
// tetragon's small package is built in. Each other project has a driver, an
// executable of its name in DIR: it reads a path from each line of standard
// input and answers with a line of JSON, see reply. With -version it prints its
// project's version. Without a driver the table says "not run". The script
// others builds the drivers.
package main

import (
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gousdt/gousdt/internal/elffile/elfimage"
	"github.com/gousdt/gousdt/internal/testprog"
)

func main() {
	name := flag.String("serve", "", "be the driver of a project")
	others := flag.String("others", "", "directory of drivers")
	root := flag.String("root", "/usr", "directory of files with probes")
	output := flag.String("o", "", "write the table into this Markdown file, between its markers")
	flag.Parse()
	err := error(nil)
	if *name != "" {
		err = serve(*name)
	} else {
		err = compare(*root, *others, *output)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "coverage:", err)
		os.Exit(1)
	}
}

// work is what all projects are asked.
type work struct {
	files     []string
	sites     map[string]map[place]bool
	groups    []group
	malformed string // a file whose second note of three is malformed
	thirteen  string // a file with a probe of 13 arguments
	damaged   []string
}

// A group is the vectors of some machines, as files.
type group struct {
	title string
	files []vector
}

type vector struct {
	path     string
	expected []argument
}

func compare(root, others, output string) error {
	directory, err := os.MkdirTemp("", "coverage")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	w, err := prepare(root, directory)
	if err != nil {
		return err
	}
	projects, err := drivers(others)
	if err != nil {
		return err
	}
	var columns []*column
	for _, p := range projects {
		c := &column{project: p}
		if len(p.command) > 0 {
			if err := c.measure(w); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		columns = append(columns, c)
	}
	table := w.table(root, columns)
	if output == "" {
		fmt.Print(table)
		return nil
	}
	return replace(output, table)
}

func prepare(root, directory string) (*work, error) {
	w := &work{sites: map[string]map[place]bool{}}
	n := 0
	keep := func(image []byte) (path string, err error) {
		n++
		path = filepath.Join(directory, fmt.Sprint(n))
		return path, os.WriteFile(path, image, 0o600)
	}
	files, err := probed(root)
	if err != nil {
		return nil, err
	}
	w.files = files
	for _, path := range files {
		if w.sites[path], err = expectedSites(path); err != nil {
			return nil, err
		}
	}
	vectors, err := testprog.LoadVectors("../../../internal/testdata/vectors")
	if err != nil {
		return nil, err
	}
	w.groups = []group{{title: "x86-64"}, {title: "arm64"}, {title: "other machines"}}
	for _, v := range vectors {
		image, ok := vectorFile(&v)
		if !ok {
			continue
		}
		g := &w.groups[2]
		switch header := v.File.Header(); {
		case header.Machine == elf.EM_X86_64 && header.Class == elf.ELFCLASS64:
			g = &w.groups[0]
		case header.Machine == elf.EM_AARCH64:
			g = &w.groups[1]
		}
		found := vector{}
		if found.path, err = keep(image); err != nil {
			return nil, err
		}
		for _, result := range strings.Split(v.Expected, " ; ") {
			if result == "none" {
				break
			}
			a, err := expectedArgument(&v, result)
			if err != nil {
				return nil, err
			}
			found.expected = append(found.expected, a)
		}
		g.files = append(g.files, found)
	}
	im := elfimage.New64()
	im.AddNotes(im.ProbeNote(siteAddress, 0, 0, "p", "first", ""),
		im.RawNote("stapsdt\x00", 3, make([]byte, 20), 4),
		im.ProbeNote(siteAddress+1, 0, 0, "p", "third", ""))
	if w.malformed, err = keep(im.Bytes()); err != nil {
		return nil, err
	}
	im = elfimage.New64()
	im.AddNotes(im.ProbeNote(siteAddress, 0, 0, "p", "long", strings.Repeat("8@%rax ", 13)))
	if w.thirteen, err = keep(im.Bytes()); err != nil {
		return nil, err
	}
	for _, image := range damaged() {
		path, err := keep(image)
		if err != nil {
			return nil, err
		}
		w.damaged = append(w.damaged, path)
	}
	return w, nil
}

// replace writes the table between the markers of a file.
func replace(path, table string) error {
	const begin, end = "<!-- coverage -->\n", "<!-- end of coverage -->"
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, alsoOK := strings.Cut(rest, end)
	if !ok || !alsoOK {
		return fmt.Errorf("%s: no lines %q and %q", path, begin, end)
	}
	return os.WriteFile(path, []byte(before+begin+table+end+after), 0o644)
}

func today() string { return time.Now().UTC().Format("January 2006") }
