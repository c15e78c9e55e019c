// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// requests define the probe of the programs whose arguments point to
// structures.
func requests(t *testing.T) *trace.Definitions {
	var d trace.Definitions
	qt.Assert(t, qt.IsNil(d.Parse("members.d", []byte(
		`provider members {
			probe request(struct request *request, int32_t code);
			probe many(struct request *request);
		};`))))
	return &d
}

// passed passes the probe once, and returns what the program says is in the
// structure: the paths of members, and their values.
func passed(t *testing.T, p *traced) (paths, values []string) {
	answer, err := p.Command("pass")
	qt.Assert(t, qt.IsNil(err))
	for _, word := range strings.Fields(answer) {
		path, value, _ := strings.Cut(word, "=")
		paths, values = append(paths, "request->"+path), append(values, value)
	}
	return paths, values
}

// Members have the values that the program sees, in events and as keys,
// wherever the compiler keeps the argument.
func TestMembersOfStructures(t *testing.T) {
	programs := []string{"members"}
	if runtime.GOARCH == "amd64" || runtime.GOARCH == "386" {
		programs = append(programs, "386")
	}
	if runtime.GOARCH != "386" { // clang has no headers for it
		programs = append(programs, "members-clang")
	}
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			path := ""
			if program == "386" {
				path = testprog.CrossPath(t, "386", "members")
			} else {
				path = testprog.Path(t, program)
			}
			p := startFile(t, path)
			paths, values := passed(t, p)
			qt.Assert(t, qt.IsTrue(len(paths) > 15))
			opts := &trace.SessionOptions{Definitions: requests(t), Events: &trace.EventOptions{}}
			var keys []*trace.Aggregation
			var want []string
			for i, member := range paths {
				opts.Events.Captures = append(opts.Events.Captures, trace.Capture{Arg: member})
				if strings.Contains(values[i], ".") && !strings.Contains(values[i], `"`) ||
					strings.Contains(values[i], "e+") || member == "request->id" {
					continue // not a key, or a different key each time
				}
				key := member
				if strings.HasPrefix(values[i], `"`) {
					key = "str(" + member + ")"
				}
				keys = append(keys, &trace.Aggregation{By: []string{key}})
				want = append(want, fmt.Sprintf("[%s] 2 ?", strings.Trim(values[i], `"`)))
			}
			opts.Aggregations = keys
			s := newSession(t, opts)
			attach(t, s, usdt.Target{Path: path, PID: p.PID}, "members:request", nil)
			for range 2 {
				_, values = passed(t, p)
				e := next(t, s, 1)[0]
				qt.Check(t, qt.Equals(e.Args[1].String(), "5"))
				qt.Check(t, qt.DeepEquals(texts(e)[2:], values))
				qt.Check(t, qt.Equals(e.Site.Argument(2).Name, paths[0]))
			}
			for i, key := range keys {
				qt.Check(t, qt.DeepEquals(rows(snapshot(t, key)), []string{want[i]}))
			}
			silent(t, s)
		})
	}
}

// Conditions see members, and hold neither way where a pointer leads nowhere.
func TestMembersInConditions(t *testing.T) {
	p := startFile(t, testprog.Path(t, "members"))
	for filter, want := range map[string]int{
		`request->tiny == -1 && request->number > 4294967294`: 1,
		`request->tiny < 0`:                      2,
		`arg0->code == -2000000000 && code == 5`: 1,
		`request->path == "/index.html" && str(request->next->path, 3) == "/la"`:       1,
		`str(request->path, request->length) == "/index"`:                              1,
		`request->share == 0.25 && request->weight < 0`:                                1,
		`request->connection->peer.port == 8080 || request->connection->fd == -7`:      1,
		`!(request->connection->fd == 3)`:                                              1,
		`request->connection->fd != 3 || request->id >= 18364758544493064720`:          2,
		`request->method & 0x100 && request->place.y >= request->place.x`:              1,
		`request->name == "fullfull" && request->label == "short"`:                     1,
		`request->name == "fullful"`:                                                   0,
		`request->name == "fullfulls"`:                                                 0,
		`request->name != "fullfulls"`:                                                 2,
		`str(request->name, 7) == "fullful"`:                                           1,
		`request->label != "short" || request->name == ""`:                             1,
		`request->kept > 1`:                                                            0,
		`global.current->path == "/index.html" && global.current->code == -2000000000`: 1,
		`str(global.current->next->path, 3) == "/la"`:                                  1,
		`global.current->connection->fd != 3 || global.current->tiny < -1`:             2,
	} {
		t.Run(filter, func(t *testing.T) {
			s, err := trace.New(&trace.SessionOptions{Definitions: requests(t), Filter: filter})
			qt.Assert(t, qt.IsNil(err))
			defer s.Close()
			attach(t, s, usdt.Target{Path: p.path, PID: p.PID}, "members:request", nil)
			for _, line := range []string{"pass", "lost"} {
				_, err := p.Command(line)
				qt.Assert(t, qt.IsNil(err))
			}
			next(t, s, want)
			silent(t, s)
		})
	}
}

// A call has the members of its start.
func TestMembersAtTheStartOfACall(t *testing.T) {
	p := startFile(t, testprog.Path(t, "members"))
	by := &trace.Aggregation{
		Latency: &trace.Latency{Pair: "members:request..members:request"},
		By:      []string{"str(start.request->path)", "start.request->connection->fd"}}
	open(t, p, "members:request", &trace.SessionOptions{Definitions: requests(t),
		Aggregations: []*trace.Aggregation{by}})
	passed(t, p)
	passed(t, p)
	qt.Check(t, qt.DeepEquals(rows(snapshot(t, by)), []string{"[/index.html -7] 1 ?"}))
}

// A variable of the program can point to the structure. Definitions can give it
// a name, and say where members are in a program without debugging information.
func TestMembersBehindVariables(t *testing.T) {
	testneeds.Tool(t, "objcopy", "binutils")
	path := filepath.Join(t.TempDir(), "stripped")
	output, err := exec.Command("objcopy", "--strip-debug", testprog.Path(t, "members"),
		path).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", output))
	for _, program := range []string{testprog.Path(t, "members"), path} {
		p := startFile(t, program)
		d := requests(t)
		qt.Assert(t, qt.IsNil(d.Parse("keys.d", []byte(`
			#pragma gousdt key members:* page str(global.current->path)
			#pragma gousdt key members:* request str(global.of_no_program)
			#pragma gousdt layout members:* current->path 8 another program
			#pragma gousdt layout members:* current->path 40 example.org
			#pragma gousdt layout members:* current->label 7 another program
		`))))
		by := &trace.Aggregation{By: []string{"page", "code"}, Where: `page == "/index.html"`}
		others := &trace.Aggregation{By: []string{"page"}, Where: `page != "/index.html"`,
			Latency: &trace.Latency{Pair: "members:request..members:request"}}
		open(t, p, "members:request", &trace.SessionOptions{Definitions: d,
			Aggregations: []*trace.Aggregation{by, others}})
		for _, line := range []string{"pass", "lost", "pass"} {
			_, err := p.Command(line)
			qt.Assert(t, qt.IsNil(err))
		}
		qt.Check(t, qt.DeepEquals(rows(snapshot(t, by)), []string{"[/index.html 5] 2 ?"}))
		qt.Check(t, qt.DeepEquals(rows(snapshot(t, others)), []string{"[/last] 1 ?"}))
	}
	s := newSession(t, &trace.SessionOptions{Definitions: requests(t),
		Filter: `global.current->label == "short"`})
	_, err = s.Attach(usdt.Target{Path: path}, nil, elfnote.Exact("members", "request"))
	qt.Check(t, qt.ErrorMatches(err, `.*has no debugging information \(compile it with -g.*`))
}

// Where sites have their arguments at many places, and the others are looked up
// in a table, members are found too.
func TestMembersAtManySites(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		p := startFile(t, testprog.Path(t, "members"))
		s := open(t, p, "members:many", &trace.SessionOptions{Definitions: requests(t), Mode: mode,
			Filter: `request->code < 0 && request->connection->peer.host == "example.org"`,
			Events: &trace.EventOptions{Captures: []trace.Capture{{Arg: "request->next->path"}}}})
		_, err := p.Command("many")
		qt.Assert(t, qt.IsNil(err))
		places := make(map[string]bool)
		for _, e := range next(t, s, 100) {
			qt.Assert(t, qt.Equals(e.Args[1].String(), `"/last"`))
			places[e.Site.Args[0].String()] = true
		}
		qt.Check(t, qt.HasLen(places, 100))
		silent(t, s)
	})
}

// The debug file of a stripped program has its structures.
func TestMembersOfAStrippedProgram(t *testing.T) {
	p := startFile(t, testprog.Path(t, "members-stripped"))
	s := open(t, p, "members:request", &trace.SessionOptions{Definitions: requests(t),
		Filter: "request->code < 0"})
	passed(t, p)
	next(t, s, 1)
}

// The error says why a member is not known.
func TestMembersThatAreNotKnown(t *testing.T) {
	alone := copyOf(t, "members-stripped") // without its debug file beside it
	path := testprog.Path(t, "members")
	for _, test := range [][3]string{
		{path, "request->idd == 1", ".*request->idd of members:request is not available: " +
			"the structure request has no member idd"},
		{path, "request->bits == 1", ".*the member bits is a bit field"},
		{path, "request->connection.fd == 1", ".*write -> before fd"},
		{path, "code->x == 1", ".*int32_t is not a pointer to a structure"},
		{path, "global.current->idd == 1", ".*the structure request has no member idd"},
		{path, "global.currant->id == 1", ".*the debugging information has no variable currant"},
		{path, "arg7->x == 1", ".*the probe has no argument arg7"},
		{alone, "request->id == 1", `.*has no debugging information \(compile it with -g.*`},
	} {
		s := newSession(t, &trace.SessionOptions{Definitions: requests(t), Filter: test[1]})
		_, err := s.Attach(usdt.Target{Path: test[0]}, nil, elfnote.Exact("members", "request"))
		qt.Check(t, qt.ErrorMatches(err, test[2]))
	}
	for _, opts := range []*trace.SessionOptions{
		{
			Events: &trace.EventOptions{
				Captures: []trace.Capture{{Arg: "request->id"}, {Arg: "request->idd"}}}},
		{Aggregations: []*trace.Aggregation{&trace.Aggregation{
			By: []string{"request->path"}}},
			Events: &trace.EventOptions{}},
	} {
		opts.Definitions = requests(t)
		_, err := newSession(t, opts).Attach(usdt.Target{Path: path}, nil,
			elfnote.Exact("members", "request"))
		qt.Check(t, qt.ErrorMatches(err,
			".*(has no member idd|request->path of members:request is a string: .*)"))
	}
	s := newSession(t, &trace.SessionOptions{Filter: "arg0->id == 1"})
	_, err := s.Attach(usdt.Target{Path: path}, nil, elfnote.Exact("members", "request"))
	qt.Check(t, qt.ErrorMatches(err, ".*no definition of the probe says what arg0 points to"))
}
