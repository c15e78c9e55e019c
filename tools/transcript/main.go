// SPDX-License-Identifier: BSD-2-Clause

// Transcript runs the commands in Markdown files and compares what they print
// with what the files show, so that no transcript is invented and none grows
// old.
//
//	go -C tools run ./transcript ../docs/recipes/*.md
//	go -C tools run ./transcript -w ../docs/recipes/*.md    rewrites the output
//
// A transcript is a fenced block of the kind "console" after a comment that
// names the workload that runs meanwhile:
//
//	<!-- workload: postgresql -->
//	```console
//	$ sudo usdttrace --count postgres 'postgresql:query__start'
//	...
//	```
//
// A workload is the program docs/recipes/workloads/NAME. It prints NAME=VALUE
// for what commands may use, then the line "ready", and runs until it gets
// SIGTERM; "none" is no workload. Where the software of a workload is not
// installed, it prints a line that begins with "missing" and ends: its
// transcripts are not compared.
//
// A block of any kind after a comment that names a file has the file's content:
//
//	<!-- file: workloads/own.c -->
//
// Numbers, times and addresses differ from run to run, and so does what comes
// first where a traced command prints, too. What is compared is that the exit
// status is 0, and that the first line that is shown is still printed, but for
// its numbers.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	write := flag.Bool("w", false, "rewrite the output in the files")
	only := flag.String("only", "", "run the transcripts of this workload only")
	flag.Parse()
	if err := run(flag.Args(), *write, *only); err != nil {
		fmt.Fprintln(os.Stderr, "transcript:", err)
		os.Exit(1)
	}
}

func run(files []string, write bool, only string) error {
	tools, err := buildCommands()
	if err != nil {
		return err
	}
	defer os.RemoveAll(tools)
	r := &runner{tools: tools, only: only, missing: make(map[string]string)}
	defer r.stop()
	differ := 0
	for _, path := range files {
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		r.workloads = filepath.Join(filepath.Dir(path), "workloads")
		if _, err := os.Stat(r.workloads); err != nil {
			r.workloads = filepath.Join(filepath.Dir(path), "recipes", "workloads")
		}
		doc := parse(string(source))
		n, err := compareFiles(filepath.Dir(path), path, doc, write)
		if err != nil {
			return err
		}
		differ += n
		for i := range doc {
			if doc[i].workload == "" {
				continue
			}
			problems, err := r.transcript(&doc[i])
			if err != nil {
				return fmt.Errorf("%s:%d: %w", path, doc[i].line, err)
			}
			for _, p := range problems {
				if !write {
					fmt.Printf("%s:%d: %s\n", path, doc[i].line, p)
					differ++
				}
			}
		}
		if write {
			if err := os.WriteFile(path, []byte(text(doc)), 0o644); err != nil {
				return err
			}
		}
	}
	for workload, why := range r.missing {
		fmt.Printf("not compared: %s: %s\n", workload, why)
	}
	if differ > 0 {
		return fmt.Errorf("%d transcripts differ: run it with -w, and read what changed", differ)
	}
	if len(r.missing) > 0 && os.Getenv("CI") == "true" {
		return fmt.Errorf("in CI, nothing may be missing")
	}
	return nil
}

// part is a run of lines of a document.
type part struct {
	text     string
	line     int    // of the file
	workload string // "" for what is no transcript
	file     string // "" for what is not the content of a file
}

// compareFiles compares the blocks that have the content of files, or puts it
// there.
func compareFiles(dir, path string, doc []part, write bool) (differ int, err error) {
	for i := range doc {
		if doc[i].file == "" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, doc[i].file))
		switch {
		case err != nil:
			return differ, fmt.Errorf("%s:%d: %w", path, doc[i].line, err)
		case write:
			doc[i].text = string(content)
		case doc[i].text != string(content):
			fmt.Printf("%s:%d: is not what is in %s\n", path, doc[i].line, doc[i].file)
			differ++
		}
	}
	return differ, nil
}

// parse divides a document into transcripts and all else. The text of a
// transcript is what is between its fences.
func parse(source string) []part {
	var parts []part
	var other strings.Builder
	workload, file := "", ""
	lines := strings.SplitAfter(source, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		other.WriteString(line)
		if rest, ok := strings.CutPrefix(line, "<!-- workload: "); ok {
			workload = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "-->"))
			continue
		}
		if rest, ok := strings.CutPrefix(line, "<!-- file: "); ok {
			file = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "-->"))
			continue
		}
		if strings.HasPrefix(line, "```console") && workload != "" || strings.HasPrefix(line, "```") && file != "" {
			parts = append(parts, part{text: other.String()})
			other.Reset()
			var body strings.Builder
			start := i + 2
			for i++; i < len(lines) && !strings.HasPrefix(lines[i], "```"); i++ {
				body.WriteString(lines[i])
			}
			parts = append(parts, part{text: body.String(), line: start, workload: workload, file: file})
			workload, file = "", ""
			if i < len(lines) {
				other.WriteString(lines[i])
			}
		} else if strings.TrimSpace(line) != "" {
			workload, file = "", ""
		}
	}
	return append(parts, part{text: other.String()})
}

func text(doc []part) string {
	var b bytes.Buffer
	for _, p := range doc {
		b.WriteString(p.text)
	}
	return b.String()
}
