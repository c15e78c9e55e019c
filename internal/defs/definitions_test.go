// SPDX-License-Identifier: BSD-2-Clause

package defs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
)

func TestBuiltin(t *testing.T) {
	known := defs.Builtin()
	for _, test := range []struct {
		provider, name string
		arguments      int
		want           string
	}{
		{"postgresql", "query__start", 1, "probe query__start(const char *query)"},
		{"postgresql", "lwlock__acquire", 2,
			"probe lwlock__acquire(const char *tranche, LWLockMode mode)"},
		{"postgresql", "twophase__checkpoint__done", 0, "probe twophase__checkpoint__done()"},
		{"python", "gc__done", 1, "probe gc__done(long collected)"},
		{"hotspot", "gc__begin", 1, "probe gc__begin(bool is_full)"},
		{"libstdcxx", "throw", 2, "probe throw(void *object, cxx_type *type_info)"},
		{"libvirt", "object_new", 2, "probe object_new(void *object, const char *class)"},
		{"libc", "memory_sbrk_more", 2, "probe memory_sbrk_more(void *start, size_t size)"},
		{"qemu", "kvm_run_exit", 2, "probe kvm_run_exit(int vcpu, kvm_exit_reason reason)"},
		{"xenstore", "watch_event", 3,
			"probe watch_event(unsigned domain, pid_t pid, const char *event)"},
		{"sssd", "dp_req_done", 5,
			"probe dp_req_done(const char *request, int target, int method, int error, const char *error_text)"},
	} {
		t.Run(test.provider+":"+test.name, func(t *testing.T) {
			probe, ok := known.Probe(test.provider, test.name, test.arguments)
			qt.Assert(t, qt.IsTrue(ok))
			qt.Assert(t, qt.Equals(textOf(probe), test.want))
		})
	}
	t.Run("depends on the number of arguments", func(t *testing.T) {
		old, ok := known.Probe("postgresql", "buffer__read__done", 8)
		qt.Assert(t, qt.IsTrue(ok))
		qt.Assert(t, qt.Equals(old.Arguments[6].Name, "is_extend"))
		newer, ok := known.Probe("postgresql", "buffer__read__done", 7)
		qt.Assert(t, qt.IsTrue(ok))
		qt.Assert(t, qt.Equals(newer.Arguments[6].Name, "is_hit"))
		_, ok = known.Probe("postgresql", "buffer__read__done", 6)
		qt.Assert(t, qt.IsFalse(ok))
	})
	t.Run("texts", func(t *testing.T) {
		probe, _ := known.Probe("hotspot", "method__entry", 7)
		var texts []string
		for _, a := range probe.Arguments {
			if a.IsText {
				texts = append(texts, a.Name+" "+probe.Arguments[a.Length].Name)
			}
		}
		qt.Assert(t, qt.DeepEquals(texts, []string{
			"class class_length", "method method_length", "signature signature_length",
		}))
		probe, _ = known.Probe("postgresql", "query__start", 1)
		qt.Assert(t, qt.IsTrue(probe.Arguments[0].IsText))
		qt.Assert(t, qt.Equals(probe.Arguments[0].Length, -1))
	})
	t.Run("names of values", func(t *testing.T) {
		probe, _ := known.Probe("postgresql", "lock__wait__start", 6)
		mode := probe.Arguments[5]
		qt.Assert(t, qt.Equals(mode.Values[1], "AccessShareLock"))
		qt.Assert(t, qt.Equals(mode.Values[8], "AccessExclusiveLock"))
		qt.Assert(t, qt.Equals(mode.Values[9], ""))
		qt.Assert(t, qt.Equals(probe.Arguments[0].Values[1], ""))
	})
	t.Run("when probes fire", func(t *testing.T) {
		for _, test := range []struct{ provider, name, when, only string }{
			{"hotspot", "method__entry", "a method begins", ".*DTraceMethodProbes.*"},
			{"php", "function__entry", "a function begins", ".*USE_ZEND_DTRACE=1.*"},
			{"php", "error", "an error or a warning is reported, but never in PHP 8.2", "in no run of PHP 8.2, .*"},
			{"hotspot", "gc__begin", "a garbage collection starts", ""},
			{"hotspot_jni", "CallIntMethod__entry", "", "when native code calls the JNI function"},
			{"libpthread", "mutex_entry", "a thread wants a mutex", ""},
			{"unknown", "gc__begin", "", ""},
		} {
			when, only := known.Fires(test.provider, test.name)
			qt.Check(t, qt.Equals(when, test.when), qt.Commentf("%s", test.name))
			qt.Check(t, qt.Matches(only, test.only), qt.Commentf("%s", test.name))
		}
		mine := defs.Builtin()
		qt.Assert(t, qt.IsNil(mine.Parse("mine.d", []byte("#pragma gousdt when hotspot:gc__* it is time\n"))))
		when, _ := mine.Fires("hotspot", "gc__begin")
		qt.Check(t, qt.Equals(when, "it is time"))
		for probe := range known.Probes() {
			when, _ := known.Fires(probe.Provider, probe.Name)
			qt.Check(t, qt.Not(qt.Equals(when, "")), qt.Commentf("%s:%s", probe.Provider, probe.Name))
		}
	})
	t.Run("is the caller's own", func(t *testing.T) {
		mine := defs.Builtin()
		qt.Assert(t, qt.IsNil(mine.Parse("mine.d",
			[]byte("provider python { probe gc__done(long other); };"))))
		probe, _ := mine.Probe("python", "gc__done", 1)
		qt.Assert(t, qt.Equals(probe.Arguments[0].Name, "other"))
		probe, _ = defs.Builtin().Probe("python", "gc__done", 1)
		qt.Assert(t, qt.Equals(probe.Arguments[0].Name, "collected"))
	})
}

// The events of QEMU are in files of its own kind.
func TestParseTraceEvents(t *testing.T) {
	const events = `# See docs/devel/tracing.rst

# block.c
blk_co_preadv(void *blk, int64_t offset, int flags) "blk %p offset %"PRId64" (flags) 0x%x"
handle_qmp_command(void *mon, const char* req)"mon %p req: %s"
nbd_trip(void) "Reading (request)"
disable qemu_malloc(size_t size) "%zu"
vcpu guest_cpu_enter(void)
vcpu guest_user_syscall_ret(uint64_t num, uint64_t ret) "num=0x%016"PRIx64
vcpu tcg guest_mem_before(TCGv vaddr, uint16_t info) "info=%d", "vaddr=0x%016"PRIx64" info=%d"
`
	d := new(defs.Definitions)
	qt.Assert(t, qt.IsNil(d.Parse("/usr/share/qemu/trace-events-all", []byte(events))))
	for _, test := range []struct {
		name      string
		arguments int
		want      string
	}{
		{"blk_co_preadv", 3, "probe blk_co_preadv(void *blk, int64_t offset, int flags)"},
		{"handle_qmp_command", 2, "probe handle_qmp_command(void *mon, const char *req)"},
		{"nbd_trip", 0, "probe nbd_trip()"},
		{"guest_cpu_enter", 1, "probe guest_cpu_enter(void *cpu)"},
		{"guest_user_syscall_ret", 3,
			"probe guest_user_syscall_ret(void *cpu, uint64_t num, uint64_t ret)"},
	} {
		probe, ok := d.Probe("qemu", test.name, test.arguments)
		qt.Check(t, qt.IsTrue(ok), qt.Commentf("%s", test.name))
		qt.Check(t, qt.Equals(textOf(probe), test.want))
	}
	for name, arguments := range map[string]int{"qemu_malloc": 1, "guest_mem_before": 3} {
		_, ok := d.Probe("qemu", name, arguments)
		qt.Check(t, qt.IsFalse(ok), qt.Commentf("%s", name))
	}
	err := d.Parse("trace-events", []byte("a(int i) \"\"\nb(int i\n"))
	qt.Check(t, qt.ErrorMatches(err, "trace-events: line 2: .*"))
}

func TestParse(t *testing.T) {
	for _, test := range []struct {
		name, source string
		want         []string // of the probes p:a with 0 to 4 arguments
	}{
		{"nothing", "", nil},
		{"no names", "provider p { probe a(int, const char *, unsigned long); };", []string{
			"probe a(int, const char *, unsigned long)",
		}},
		{"names", "provider p { probe a(unsigned n, char* text, struct foo *f, my_t v); };",
			[]string{
				"probe a(unsigned n, char *text, struct foo *f, my_t v)",
			}},
		{"void", "provider p { probe a(void); };", []string{"probe a()"}},
		{"types that are defined",
			"#define Oid unsigned int\nprovider p { probe a(Oid relation, Oid); };", []string{
				"probe a(unsigned int relation, unsigned int)",
			}},
		{"arrays and pointers to pointers",
			"provider p { probe a(char **argv, int fds[2]); };", []string{
				"probe a(char **argv, int *fds)",
			}},
		{"comments, pragmas and conditions",
			"/* a\n * b */ #pragma D depends_on\n#ifdef X\nprovider p { // c\n  # file: x.c\n  probe a(int i); }\n#endif\n",
			[]string{"probe a(int i)"}},
		{"what DTrace translates",
			"typedef struct { int x; } c_t;\nprovider p { probe a(c_t *c) : (d_t *d); };", []string{
				"probe a(c_t *c)",
			}},
		{"several numbers of arguments",
			"provider p { probe a(int i); probe a(int i, int j); };", []string{
				"probe a(int i)", "probe a(int i, int j)",
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var d defs.Definitions
			qt.Assert(t, qt.IsNil(d.Parse("p.d", []byte(test.source))))
			var got []string
			for n := range 5 {
				if probe, ok := d.Probe("p", "a", n); ok {
					got = append(got, textOf(probe))
				}
			}
			qt.Assert(t, qt.DeepEquals(got, test.want))
		})
	}
}

func TestParseErrors(t *testing.T) {
	for _, test := range []struct{ name, source, want string }{
		{"no end", "provider p {\n probe a(int i);",
			`p.d: line 2: "probe" is expected before the end of the file`},
		{"no parenthesis", "provider p { probe a; };", `p.d: line 1: "(" is expected before ";"`},
		{"no type", "provider p { probe a(,); };", `p.d: line 1: a type is expected before ","`},
		{"two of a name", "provider p { probe a(int i, int i); };",
			"p.d: line 1: two arguments are called i"},
		{"a comment without end", "/* x", "p.d: line 1: a comment has no end"},
		{"something else", "\nint main() {}",
			`p.d: line 2: "provider" or "enum" is expected before "int"`},
		{"a malformed pragma", "#pragma gousdt fires p:x",
			"p.d: line 1: a pragma reads: #pragma gousdt when PROVIDER:PROBE TEXT, or fires, helper, note, apart, match, time, key, layout, own, frame or stacks in place of when"},
		{"an unknown pragma", "#pragma gousdt whence p:x y",
			"p.d: line 1: a pragma reads: #pragma gousdt when PROVIDER:PROBE TEXT, or fires, helper, note, apart, match, time, key, layout, own, frame or stacks in place of when"},
		{"an offset that is none", "#pragma gousdt layout p:* port->user x version",
			`p.d: line 1: the offset of a member: strconv.ParseUint: parsing "x": invalid syntax`},
		{"a malformed helper", "#pragma gousdt helper p:x p:y if z",
			"p.d: line 1: a helper reads: #pragma gousdt helper PROVIDER:PROBE PROVIDER:HELPER with SYMBOL, or without the last two words"},
		{"too large", strings.Repeat(" ", 2<<20),
			"p.d: a file of definitions can have at most 1048576 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := defs.Builtin()
			qt.Assert(t, qt.ErrorMatches(d.Parse("p.d", []byte(test.source)), ".*"))
			qt.Assert(t, qt.Equals(d.Parse("p.d", []byte(test.source)).Error(), test.want))
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("enum e { a = -1, b };\nprovider p { probe a(const char *x, long x_length, e v) : (int); };\n#define T int\n")
	f.Add("a(int i) \"%d\"\nvcpu b(void)\n")
	f.Add("#pragma gousdt when p:* it does\n#pragma gousdt fires p:* always\ntypedef struct { int x; } y;")
	f.Add("#pragma gousdt key p:* a str(global.b->c)\n#pragma gousdt layout p:* b->c 8 version 1.")
	f.Add("#pragma gousdt helper p:a p:b with c\n#pragma gousdt helper p:* p:b")
	f.Fuzz(func(t *testing.T, source string) {
		var d defs.Definitions
		_ = d.Parse("trace-events", []byte(source))
		if d.Parse("fuzz.d", []byte(source)) != nil {
			return
		}
		d.Fires("p", "a")
		d.Key("a", nil)
		d.Layout("b->c", func(string) bool { return false })
		if probe, ok := d.Probe("p", "a", 3); ok {
			qt.Assert(t, qt.HasLen(probe.Arguments, 3))
		}
	})
}

// A name stands for what the last definition says, where its probes are meant.
func TestKeysAndLayouts(t *testing.T) {
	d := defs.Builtin()
	qt.Assert(t, qt.IsNil(d.Parse("p.d", []byte(`
		#pragma gousdt key p:a* user str(global.first)
		#pragma gousdt key p:a* user str(global.port->user)
		#pragma gousdt layout p:* port->user 8 version 1.
		#pragma gousdt layout p:* port->user 0x10 version 2.
		provider p { probe a1(int i); probe b(int i); };`))))
	for pattern, want := range map[string]string{
		"p:a1": "str(global.port->user)", "p:*": "str(global.port->user)", "p:b": "", "q:a1": "",
		"postgresql:query__start": "str(global.MyProcPort->user_name)",
	} {
		parsed, err := elfnote.ParsePattern(pattern)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(d.Key("user", []elfnote.Pattern{parsed}), want), qt.Commentf("%s", pattern))
	}
	qt.Check(t, qt.Equals(d.Key("nobody", nil), ""))
	for program, want := range map[string]int64{"version 1.5": 8, "version 2.1 or version 1.": 16,
		"version 3.0": -1} {
		at, ok := d.Layout("port->user", func(text string) bool { return strings.Contains(program, text) })
		qt.Check(t, qt.Equals(ok, want >= 0))
		qt.Check(t, qt.IsTrue(!ok || at == want), qt.Commentf("%s: %d", program, at))
	}
	_, ok := d.Layout("port->name", func(string) bool { return true })
	qt.Check(t, qt.IsFalse(ok))
	_, ok = (*defs.Definitions)(nil).Layout("port->user", func(string) bool { return true })
	qt.Check(t, qt.IsFalse(ok))
}

func TestHelpers(t *testing.T) {
	d := defs.Builtin()
	qt.Assert(t, qt.IsNil(d.Parse("own.d", []byte(
		"#pragma gousdt helper own:a* own:tick\n#pragma gousdt helper own:ab other:tock with c\n"))))
	for probe, want := range map[string][]string{
		"python:function__entry": {"python:line", "PyFrame_GetLasti"},
		"own:a":                  {"own:tick", ""}, "own:ab": {"other:tock", "c"},
		"python:function__return": nil, "own:b": nil,
	} {
		provider, name, _ := strings.Cut(probe, ":")
		helper, symbol, ok := d.Helper(provider, name)
		qt.Check(t, qt.Equals(ok, want != nil))
		if ok {
			qt.Check(t, qt.DeepEquals([]string{helper.String(), symbol}, want))
		}
	}
	_, _, ok := (*defs.Definitions)(nil).Helper("python", "function__entry")
	qt.Check(t, qt.IsFalse(ok))
}

// What names alone would get wrong: what arguments are, and which probes are
// pairs.
func TestNotesAndPairsThatAreNone(t *testing.T) {
	d := defs.Builtin()
	for _, test := range []struct {
		provider, name string
		argument       int
		want           string
	}{
		{"postgresql", "clog__checkpoint__start", 0, "is_normal: false for the .*"},
		{"postgresql", "multixact__checkpoint__done", 0, "is_normal: false for the .*"},
		{"postgresql", "sort__done", 1, "used: blocks of 8 kB .* else kB of memory; the leader .* again"},
		{"postgresql", "buffer__extend__done", 5, "blocks: .*"},
		{"hotspot", "object__alloc", 3, "size: .* garbage .*"},
		{"hotspot", "object__alloc", 0, "java_thread_id: "},
	} {
		all := map[string]int{"sort__done": 2, "buffer__extend__done": 7, "object__alloc": 4}
		probe, ok := d.Probe(test.provider, test.name, max(all[test.name], 1))
		qt.Assert(t, qt.IsTrue(ok))
		a := probe.Arguments[test.argument]
		qt.Check(t, qt.Matches(a.Name+": "+a.Note, test.want))
	}

	contended, ok := d.Call(defs.MustParsePairPattern("hotspot:monitor__contended"))
	qt.Assert(t, qt.IsTrue(ok))
	qt.Check(t, qt.DeepEquals(contended.Pairs,
		[][2]string{{"monitor__contended__enter", "monitor__contended__entered"}}))
	qt.Check(t, qt.Equals(contended.Arguments[2].Length, 3))

	site := []elfnote.Site{{}}
	listing := &defs.Listing{}
	for _, name := range []string{"rpc_keepalive_start", "rpc_keepalive_stop"} {
		listing.Probes = append(listing.Probes,
			defs.FileProbe{Provider: "libvirt", Name: name, Sites: site})
	}
	for pattern, want := range map[string]int{"*": 0, "libvirt:rpc_keepalive": 0,
		"libvirt:rpc_keepalive_start..libvirt:rpc_keepalive_stop": 1} {
		qt.Check(t, qt.HasLen(d.Pairs(listing, defs.MustParsePairPattern(pattern)), want))
	}
	var none *defs.Definitions
	qt.Check(t, qt.HasLen(none.NamedPairs(listing, defs.MustParsePairPattern("*")), 1))
}

func TestCalls(t *testing.T) {
	d := defs.Builtin()
	statement, ok := d.Call(defs.MustParsePairPattern("postgresql:statement"))
	qt.Assert(t, qt.IsTrue(ok))
	qt.Check(t, qt.Equals(statement.Arguments[0].Value, "global.debug_query_string"))
	qt.Check(t, qt.IsTrue(statement.Arguments[0].IsText))
	qt.Assert(t, qt.IsNil(d.Parse("own.d", []byte(`provider own {
		call work(int a, const char *b = arg1) {
			begin .. end;
			failed stop if a == 1 && str(b) != "x y";
			attempt idle;
			open since if global.a != 0;
		};
		call sale() { alone; sell .. sold; over stop; };
	};
	#pragma gousdt match own:sale id=arg1
	#pragma gousdt time own:sale something is sold`))))
	for _, pattern := range []string{"own:sale", "own:sell..own:sold", "own:sell..sold"} {
		pair := defs.MustParsePairPattern(pattern)
		sale, ok := d.Call(pair)
		qt.Assert(t, qt.IsTrue(ok), qt.Commentf(pattern))
		qt.Check(t, qt.Equals(sale.Nesting, defs.Alone))
		qt.Check(t, qt.DeepEquals(sale.Over, []defs.CallProbe{{Name: "stop"}}))
		qt.Check(t, qt.Equals(d.Match(pair), "id=arg1"))
		qt.Check(t, qt.Equals(d.Time(pair), "something is sold"))
		qt.Check(t, qt.HasLen(d.Patterns(pair), 3))
	}
	// These are other probes than those of a call, or not all of them.
	for _, pattern := range []string{"own:sell..own:stop", "own:begin..own:end"} {
		_, ok := d.Call(defs.MustParsePairPattern(pattern))
		qt.Check(t, qt.IsFalse(ok), qt.Commentf(pattern))
	}
	pair := defs.MustParsePairPattern("own:work")
	work, ok := d.Call(pair)
	qt.Assert(t, qt.IsTrue(ok))
	qt.Check(t, qt.DeepEquals(work.Pairs, [][2]string{{"begin", "end"}}))
	qt.Check(t, qt.DeepEquals(work.Failed,
		[]defs.CallProbe{{Name: "stop", If: `a == 1 && str(b) != "x y"`}}))
	qt.Check(t, qt.DeepEquals(work.Attempts, []defs.CallProbe{{Name: "idle"}}))
	qt.Check(t, qt.DeepEquals(work.Open, []defs.CallProbe{{Name: "since", If: "global.a != 0"}}))
	qt.Check(t, qt.Equals(work.Arguments[1].Value, "arg1"))
	var patterns []string
	for _, p := range d.Patterns(pair) {
		patterns = append(patterns, p.String())
	}
	qt.Check(t, qt.DeepEquals(patterns, []string{"own:begin", "own:end", "own:stop", "own:idle"}))

	listing := &defs.Listing{Probes: []defs.FileProbe{
		{Provider: "own", Name: "begin"}, {Provider: "own", Name: "end"},
		{Provider: "own", Name: "a__start"}, {Provider: "own", Name: "a__done"}}}
	for pattern, want := range map[string][]string{
		"*": {"own:work", "own:begin..own:end", "own:a"}, "own:work": {"own:work"},
		"own:a": {"own:a"}, "other:*": nil,
	} {
		var names []string
		for _, p := range d.Pairs(listing, defs.MustParsePairPattern(pattern)) {
			names = append(names, p.String())
		}
		qt.Check(t, qt.DeepEquals(names, want))
	}

	// The start that is written out is that of a call, too, but the end is not.
	d = defs.Builtin()
	listing = &defs.Listing{Probes: []defs.FileProbe{
		{Provider: "postgresql", Name: "transaction__start", Sites: make([]elfnote.Site, 1)},
		{Provider: "postgresql", Name: "transaction__commit", Sites: make([]elfnote.Site, 1)},
		{Provider: "postgresql", Name: "transaction__abort", Sites: make([]elfnote.Site, 1)}}}
	pairs := d.Pairs(listing, defs.MustParsePairPattern("postgresql:transaction__start.."+
		"postgresql:transaction__commit|postgresql:transaction__abort"))
	qt.Assert(t, qt.HasLen(pairs, 1))
	qt.Check(t, qt.DeepEquals(pairs[0].Done, listing.Probes[1]))

	var none *defs.Definitions
	_, ok = none.Call(pair)
	qt.Check(t, qt.IsFalse(ok))
	qt.Check(t, qt.HasLen(none.Patterns(pair), len(pair.Patterns())))
	for source, want := range map[string]string{
		`provider p { call c() { }; };`: `own.d: line 1: the call c has no pair of probes START..DONE`,
		`provider p { call c() { each; attempt d; a .. b; }; };`: `own.d: line 1: the call c has attempts: ` +
			`only the outermost counts`,
		`provider p { call c() { a . b; }; };`:        `own.d: line 1: "." is expected before "b"`,
		`provider p { call c() { a .. b }; };`:        `own.d: line 1: ";" is expected before "}"`,
		`provider p { probe c(int a = arg1); };`:      `own.d: line 1: the value of a probe's argument is ARGUMENT\[NUMBER\], as in arg1\[1\]`,
		`provider p { call c() { a .. b; failed d if`: `own.d: line 1: ";" is expected before the end of the file`,
	} {
		qt.Check(t, qt.ErrorMatches(new(defs.Definitions).Parse("own.d", []byte(source)), want))
	}
}

func textOf(p defs.Probe) string {
	var b strings.Builder
	fmt.Fprintf(&b, "probe %s(", p.Name)
	for i, a := range p.Arguments {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(a.Type)
		if a.Name != "" && !strings.HasSuffix(a.Type, "*") {
			b.WriteByte(' ')
		}
		b.WriteString(a.Name)
	}
	return b.String() + ")"
}

// What a call's start and end have in common is a provider's own matter.
func TestMatch(t *testing.T) {
	d := defs.Builtin()
	qt.Assert(t, qt.IsNil(d.Parse("shop.d", []byte(`
#pragma gousdt match shop:* goroutine
#pragma gousdt match shop:job* id`))))
	for pattern, want := range map[string]string{
		"shop:request": "goroutine", "shop:*": "goroutine", "shop:a..shop:b": "goroutine",
		"shop:job": "id", "store:request": "", "*": "", "postgresql:query": "",
		"hotspot:mem__pool__gc": "pool", "hotspot:*": "", "mysql:connection": "connection",
		"qemu:qcow2_writev_start_req..qcow2_writev_done_req": "coroutine",
	} {
		qt.Check(t, qt.Equals(d.Match(defs.MustParsePairPattern(pattern)), want), qt.Commentf(pattern))
	}
	var none *defs.Definitions
	qt.Check(t, qt.Equals(none.Match(defs.MustParsePairPattern("shop:*")), ""))
}
