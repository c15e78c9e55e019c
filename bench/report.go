// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// report is what came out of a run.
type report struct {
	machine []string
	rows    []rowResult
}

func (rep *report) addRow(r rowResult) {
	rep.rows = append(rep.rows, r)
	fmt.Printf("%s: %s\n", r.name, r.title)
	if r.missing != "" {
		fmt.Printf("  not run: %s\n\n", r.missing)
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, line := range r.lines() {
		fmt.Fprintf(w, "  %s\n", strings.Join(line, "\t"))
	}
	w.Flush()
	for _, o := range r.outcomes {
		fmt.Printf("  %s: %s: %s\n", o.Verdict, o.Limit, o.Measured)
	}
	fmt.Println()
}

// lines returns for each contestant its name, its cost, and how much of it the
// first contestant's is.
func (r *rowResult) lines() [][]string {
	var lines [][]string
	for i, s := range r.series {
		line := []string{s.Name, "not run: " + s.Missing, ""}
		if s.Missing == "" {
			line[1] = summarize(s.Samples).Spread(r.unit.Format)
			if i > 0 {
				line[2] = ratioOf(r.series[0], s).Spread(formatRatio)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// goalHead is over goalLines.
var goalHead = []string{"work", "goal", "measured", ""}

// goalLines returns for each goal the work, the limit, what was measured of it,
// and the verdict.
func (rep *report) goalLines() [][]string {
	var lines [][]string
	for _, r := range rep.rows {
		for _, o := range r.outcomes {
			text := o.Text
			if text == "" {
				text = r.title
			}
			lines = append(lines, []string{text, o.Limit, o.Measured, string(o.Verdict)})
		}
	}
	return lines
}

func (rep *report) printGoals() {
	fmt.Println("goals:")
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, line := range rep.goalLines() {
		verdict, rest := line[len(line)-1], line[:len(line)-1]
		fmt.Fprintf(w, "  %s\t%s\n", verdict, strings.Join(rest, "\t"))
	}
	w.Flush()
}

// What is between these lines of a Markdown file is written by a run.
const (
	beginMarker = "<!-- results: written by make bench -->"
	endMarker   = "<!-- end of results -->"
)

// writeInto replaces the results in a Markdown file.
func (rep *report) writeInto(path string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	updated, err := replaceResults(string(old), rep.markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(updated), 0o644)
}

func replaceResults(text, results string) (string, error) {
	before, rest, ok := strings.Cut(text, beginMarker)
	_, after, closed := strings.Cut(rest, endMarker)
	if !ok || !closed {
		return "", fmt.Errorf("no place for the results: the lines %q and %q are missing",
			beginMarker, endMarker)
	}
	return before + beginMarker + "\n\n" + results + "\n" + endMarker + after, nil
}

func (rep *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## The machine\n\n")
	for _, line := range rep.machine {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	fmt.Fprintf(&b, "\n## The goals\n\n")
	markdownTable(&b, goalHead, rep.goalLines())
	fmt.Fprintf(&b, "\n## Who takes how long\n")
	for _, r := range rep.rows {
		fmt.Fprintf(&b, "\n**%s**\n\n", capital(r.title))
		if r.missing != "" {
			fmt.Fprintf(&b, "Not run: %s.\n", r.missing)
			continue
		}
		markdownTable(&b, []string{"", "cost", "the first one's is so much of it"}, r.lines())
	}
	return b.String()
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func markdownTable(b *strings.Builder, head []string, lines [][]string) {
	escape := strings.NewReplacer("|", `\|`, "\n", " ")
	row := func(cells []string) {
		for _, cell := range cells {
			fmt.Fprintf(b, "| %s ", escape.Replace(cell))
		}
		b.WriteString("|\n")
	}
	row(head)
	row(strings.Split(strings.Repeat("---,", len(head)-1)+"---", ","))
	for _, line := range lines {
		row(line)
	}
}

// describeMachine returns what the results depend on, a line each.
func describeMachine(waited string) []string {
	var name unix.Utsname
	_ = unix.Uname(&name)
	load, _ := os.ReadFile("/proc/loadavg")
	lines := []string{
		fmt.Sprintf("%d × %s", runtime.NumCPU(), processor()),
		fmt.Sprintf("Linux %s, %s", unix.ByteSliceToString(name.Release[:]),
			unix.ByteSliceToString(name.Machine[:])),
		fmt.Sprintf("load at the beginning (1, 5, 15 minutes): %s%s",
			strings.Join(strings.Fields(string(load))[:3], ", "), waited),
		fmt.Sprintf("gousdt built with %s", runtime.Version()),
		"libbpf: " + libbpfVersion(),
	}
	for _, tool := range [][]string{{"bpftrace", "--version"}, {"readelf", "--version"},
		{"clang-14", "--version"}} {
		lines = append(lines, toolVersion(tool[0], tool[1:]...))
	}
	if version := bccVersion(); version != "" {
		lines = append(lines, "bcc "+version)
	} else {
		lines = append(lines, "bcc: not installed")
	}
	return append(lines, softwareVersions()...)
}

func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func libbpfVersion() string {
	p, err := startPeer("libbpf")
	if err != nil {
		return err.Error()
	}
	defer p.Close()
	answer, err := p.Ask("version")
	if err != nil {
		return err.Error()
	}
	version := strings.Join(answer, " ")
	if os.Getenv("LIBBPF_LIBS") == "" {
		version += ", the system's (the newest release is not run: it is not built)"
	}
	return version
}

func toolVersion(name string, arguments ...string) string {
	out, err := exec.Command(name, arguments...).Output()
	if err != nil {
		return name + ": not installed"
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return first
}

// softwareVersions names the files whose probes are listed.
func softwareVersions() []string {
	var lines []string
	for _, find := range []func() (string, error){postgres, libjvm} {
		path, err := find()
		if err != nil {
			lines = append(lines, err.Error())
			continue
		}
		if info, err := os.Stat(path); err == nil {
			lines = append(lines, fmt.Sprintf("%s, %.1f MB", path, float64(info.Size())/1e6))
		}
	}
	return lines
}

// maxLoad is the load of the last minute above which nothing is measured that
// is to be published: ratios bear a busy machine, but not all of them.
const maxLoad = 1

// waitForRest waits until the machine is at rest, and returns how long that
// took. It gives up after a while.
func waitForRest(patience time.Duration) (time.Duration, error) {
	start := time.Now()
	for {
		load, err := loadOfLastMinute()
		if err != nil {
			return 0, err
		}
		waited := time.Since(start).Round(time.Second)
		if load <= maxLoad {
			return waited, nil
		}
		if waited >= patience {
			return 0, fmt.Errorf("the load is %.2f, after waiting %v for it to fall to %d: results of a busy machine are not written "+
				"(-wait sets how long, and without -o they are printed)", load, waited, maxLoad)
		}
		fmt.Fprintf(os.Stderr, "bench: the load is %.2f, waiting for it to fall to %d\n",
			load, maxLoad)
		time.Sleep(10 * time.Second)
	}
}

func loadOfLastMinute() (float64, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err != nil {
		return 0, fmt.Errorf("/proc/loadavg: %w", err)
	}
	return load, nil
}
