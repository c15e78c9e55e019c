// SPDX-License-Identifier: BSD-2-Clause

//go:build selftest

package libbpf_test

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/libbpf"
)

// differences are the assertions of the selftest that fail on purpose: it
// wants the breakpoint on the five-byte nop behind a nop, where Linux 6.18 to
// 7.1 overwrite what a leaf function keeps below its stack pointer.
var differences = []string{"optimized_attach/nop", "optimized_attach/call", "optimized_attach/executed"}

// Linux' own test of libbpf's side of USDT passes with this package in
// libbpf's place: its sources and BPF programs are unchanged. Run it by make
// test-selftest, which fetches them. See internal/testdata/libbpf/selftest.
func TestSelftestOfLinux(t *testing.T) {
	testprog.RequireBPF(t)
	t.Chdir("../../internal/testdata/build/selftest")
	version, err := os.ReadFile("version")
	qt.Assert(t, qt.IsNil(err))
	t.Logf("of %s", version)
	for _, program := range []string{"selftest-O0", "selftest-O2"} {
		t.Run(program, func(t *testing.T) { runSelftest(t, program) })
	}
}

func runSelftest(t *testing.T, program string) {
	testprog.LeakCheck(t)
	path, err := filepath.Abs(program)
	qt.Assert(t, qt.IsNil(err))
	requests, theirs, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	defer requests.Close()
	answered, answers, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	defer answers.Close()
	var out strings.Builder
	cmd := exec.Command(path)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &out, os.Stderr, []*os.File{theirs, answered}
	qt.Assert(t, qt.IsNil(cmd.Start()))
	theirs.Close()
	answered.Close()

	s := selftest{path: path, objects: map[string]*selftestObject{}, links: map[int]*usdt.Link{}}
	for in := bufio.NewScanner(requests); in.Scan(); {
		answer, err := s.answer(strings.Fields(in.Text()))
		if err != nil {
			t.Logf("%s: %v", in.Text(), err)
			answer = fmt.Sprint(-int(errorNumber(err)))
		}
		fmt.Fprintln(answers, answer)
	}
	qt.Check(t, qt.IsNil(cmd.Wait()))
	qt.Check(t, qt.HasLen(s.objects, 0))
	var failed []string
	failure := regexp.MustCompile(`(?m)^FAIL (\S+): .*`)
	for _, match := range failure.FindAllStringSubmatch(out.String(), -1) {
		if failed = append(failed, match[1]); !slices.Contains(differences, match[1]) {
			t.Error(match[0])
		}
	}
	qt.Check(t, qt.DeepEquals(failed, differences))
	t.Logf("%d assertions hold", strings.Count(out.String(), "\nok "))
	for _, name := range []string{"basic/usdt12_arg12", "multispec/usdt_400_sum",
		"urand_auto_attach/urandlib_w_sema_sum", "urand_pid_attach/urandlib_w_sema_sum"} {
		qt.Check(t, qt.StringContains(out.String(), "ok "+name+"\n")) // the last ones of the subtests
	}
}

// errorNumber is what libbpf returns for an error.
func errorNumber(err error) (n syscall.Errno) {
	var limit *usdt.LimitError
	switch {
	case errors.As(err, &limit):
		return syscall.E2BIG
	case errors.As(err, &n):
		return n
	default:
		return syscall.EINVAL
	}
}

// A selftest is what a run of it has asked for.
type selftest struct {
	path    string // for /proc/self/exe
	objects map[string]*selftestObject
	links   map[int]*usdt.Link
	made    int // links, so far
}

type selftestObject struct {
	spec       *ebpf.CollectionSpec
	manager    *usdt.Manager
	collection *ebpf.Collection
}

// answer does what the shim asks for: see
// internal/testdata/libbpf/selftest/shim.c.
func (s *selftest) answer(request []string) (answer string, err error) {
	object := s.objects[request[1]]
	switch request[0] {
	case "load":
		if object, err = loadSelftest(request[1] + ".o"); err == nil {
			s.objects[request[1]] = object
		}
		return "0", err
	case "map":
		return fmt.Sprint(object.collection.Maps[request[2]].FD()), nil
	case "attach":
		var names []string
		for _, name := range slices.Sorted(maps.Keys(object.spec.Programs)) {
			program := object.spec.Programs[name]
			program.SectionName = strings.Replace(program.SectionName, "/proc/self/exe", s.path, 1)
			if strings.HasPrefix(program.SectionName, "usdt/") {
				names = append(names, name)
			}
		}
		links, err := libbpf.AttachSections(object.manager, object.spec, object.collection,
			usdt.Target{}, nil)
		if err == nil && len(links) != len(names) {
			err = fmt.Errorf("%d links for %q", len(links), names)
		}
		answer = "0"
		for i, link := range links {
			answer += fmt.Sprintf(" %s=%d", names[i], s.keep(link))
		}
		return answer, err
	case "usdt":
		var self, pid int
		var cookie uint64
		if _, err := fmt.Sscan(strings.Join([]string{request[3], request[4], request[8]}, " "),
			&self, &pid, &cookie); err != nil {
			return "", err
		}
		target := usdt.Target{Path: strings.Replace(request[5], "/proc/self/exe", s.path, 1)}
		switch pid {
		case 0: // itself
			target.PID = self
		case -1: // all
		default:
			target.PID = pid
			if target.Path, err = filepath.Abs(target.Path); err != nil {
				return "", err
			}
		}
		link, err := object.manager.Attach(object.collection.Programs[request[2]], target,
			&usdt.AttachOptions{Cookie: cookie}, elfnote.Exact(request[6], request[7]))
		if err != nil {
			return "", err
		}
		return fmt.Sprint(s.keep(link)), nil
	case "detach":
		var id int
		fmt.Sscan(request[1], &id)
		return "0", s.links[id].Close()
	case "destroy":
		delete(s.objects, request[1])
		err := object.manager.Close()
		object.collection.Close()
		return "0", err
	default:
		return "", fmt.Errorf("no request %q", request)
	}
}

func (s *selftest) keep(link *usdt.Link) (id int) {
	s.made++
	s.links[s.made] = link
	return s.made
}

func loadSelftest(path string) (*selftestObject, error) {
	spec, err := libbpf.LoadCollectionSpec(path)
	if err != nil {
		return nil, err
	}
	manager, err := usdt.NewManager(spec, nil)
	if err != nil {
		return nil, err
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, *manager.CollectionOptions())
	return &selftestObject{spec, manager, collection}, err
}
