// SPDX-License-Identifier: BSD-2-Clause

// Transcript runs the commands in Markdown files and compares what they print
// with what the files show, so that no transcript is invented and none grows
// old.
//
//	go -C tools run ./transcript ../README.md ../docs/recipes/*.md
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
// for what commands may use besides $REPOSITORY, then the line "ready", and
// runs until it gets SIGTERM; "none" is no workload. Where the software of a
// workload is not installed, it prints a line that begins with "missing" and
// ends: its transcripts are not compared. Transcripts of one workload run one
// after the other, whatever file they are in. Those of PostgreSQL run beside
// all others.
//
// Numbers, times and addresses differ from run to run, and so does what comes
// first where a traced command prints, too. The exit status must be 0 unless
// the next command is "echo $?". The first line that is shown must still be
// printed, but for its numbers, and so must the lines that name the columns of
// tables. With the word "exactly" after the workload, every line is compared,
// and usdtlist must print no other. A command that prints something else beside
// a workload is run again, with a message, up to five times in all: what
// happens in some seconds is chance.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gousdt/gousdt/tools/docs"
)

const (
	workloads = "../docs/recipes/workloads"

	// longest is the workload whose transcripts take as long as all others.
	// They run beside these: neither has the software of the other.
	longest = "postgresql"
)

func main() {
	write := flag.Bool("w", false, "rewrite the output in the files")
	flag.Parse()
	if err := run(flag.Args(), *write); err != nil {
		fmt.Fprintln(os.Stderr, "transcript:", err)
		os.Exit(1)
	}
}

// transcript is a block of a document that is run.
type transcript struct {
	*docs.Block
	path string
}

func run(files []string, write bool) error {
	var lanes [2][]transcript
	var documents []*docs.Document
	for _, path := range files {
		d, err := docs.Read(path)
		if err != nil {
			return err
		}
		documents = append(documents, d)
		for _, b := range d.Blocks() {
			switch workload, _, _ := strings.Cut(b.Mark["workload"], " "); workload {
			case "":
			case longest:
				lanes[0] = append(lanes[0], transcript{b, path})
			default:
				lanes[1] = append(lanes[1], transcript{b, path})
			}
		}
	}
	dir, err := os.MkdirTemp("", "transcript")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	repository, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	tools := filepath.Join(dir, "bin")
	cmd := exec.Command("go", "build", "-o", tools+"/", "./usdtlist", "./usdttrace")
	cmd.Dir, cmd.Stderr = filepath.Join(repository, "cmd"), os.Stderr
	// Other users run the commands, too.
	if err := errors.Join(os.Chmod(dir, 0o755), cmd.Run()); err != nil {
		return fmt.Errorf("build the commands: %w", err)
	}
	var runners [len(lanes)]runner
	var running sync.WaitGroup
	for i, lane := range lanes {
		r := &runners[i]
		*r = runner{tools: tools, dir: filepath.Join(dir, fmt.Sprint("work", i)),
			repository: repository, missing: make(map[string]string)}
		running.Go(func() { r.err = r.all(lane, write) })
	}
	running.Wait()
	if err := errors.Join(runners[0].err, runners[1].err); err != nil {
		return err
	}
	if write {
		for _, d := range documents {
			if err := os.WriteFile(d.Path, []byte(d.String()), 0o644); err != nil {
				return err
			}
		}
	}
	differ, missing := 0, 0
	for _, r := range runners {
		differ, missing = differ+r.differ, missing+len(r.missing)
		for workload, why := range r.missing {
			fmt.Printf("not compared: %s: %s\n", workload, why)
		}
	}
	if differ > 0 {
		return fmt.Errorf("%d commands print something else: run it with -w, and read what changed",
			differ)
	}
	if missing > 0 && os.Getenv("CI") == "true" {
		return fmt.Errorf("in CI, nothing may be missing")
	}
	return nil
}

// all runs the transcripts of a lane, and prints what differs.
func (r *runner) all(lane []transcript, write bool) error {
	defer r.stop()
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return err
	}
	// Each workload is started once: that takes longer than its commands.
	slices.SortStableFunc(lane, func(a, b transcript) int {
		return strings.Compare(a.Mark["workload"], b.Mark["workload"])
	})
	for _, t := range lane {
		problems, err := r.transcript(t.Block)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", t.path, t.Line, err)
		}
		for _, p := range problems {
			if !write || strings.Contains(p, "fails: ") {
				fmt.Printf("%s:%d: %s\n", t.path, t.Line, p)
				r.differ++
			}
		}
	}
	return nil
}
