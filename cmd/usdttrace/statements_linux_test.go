// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

const drivers = "../../internal/testdata/drivers"

// Whatever driver passes statements, in whatever protocol: each is one call
// with its text, as often as the server itself counts it.
func TestStatementsOfDrivers(t *testing.T) { eachPostgres(t, testStatementsOfDrivers) }

func testStatementsOfDrivers(t *testing.T, of testprog.Release) {
	testprog.RequireBPF(t)
	server := of.StartPostgresForDrivers(t)
	port := strconv.Itoa(server.Port)
	server.Query("CREATE TABLE t (a int, note text)")
	bench := func(arguments ...string) *exec.Cmd {
		return server.Client("pgbench",
			append(arguments, "-h", server.SocketDir, "-p", port, "-U", "gousdt", "postgres")...)
	}
	output(t, bench("-i", "-q"))
	for name, test := range map[string]struct {
		client *exec.Cmd
		failed int
		// uncounted: PostgreSQL 15 does not count other statements than queries
		// when they are executed again.
		uncounted []string
	}{
		"pgbench simple":   {client: bench("-n", "-M", "simple", "-c", "2", "-t", "50")},
		"pgbench extended": {client: bench("-n", "-M", "extended", "-c", "2", "-t", "50")},
		"pgbench prepared": {client: bench("-n", "-M", "prepared", "-c", "2", "-t", "50"),
			uncounted: []string{"BEGIN", "END"}},
		"psycopg2": {client: python(t, "psycopg2", port), failed: 10},
		"psycopg":  {client: python(t, "psycopg", port), failed: 10},
		"JDBC":     {client: jdbc(t, port), failed: 10},
		"pgx":      {client: pgx(t, port), failed: 10},
	} {
		t.Run(name, func(t *testing.T) {
			server.Query("SELECT pg_stat_statements_reset()")
			r := watching(t, "--json", "--slow", "0", server.File, "postgresql:statement")
			output(t, test.client)
			result := r.interrupt()
			counted, failed := make(map[string]int), 0
			for _, span := range result.objects("span") {
				text := span.startText(t)
				qt.Check(t, qt.Equals(span.Pair, "postgresql:statement"))
				if span.Failed {
					qt.Check(t, qt.Equals(text, "SELECT 1/0"))
					failed++
					continue
				}
				counted[general(text)]++
			}
			qt.Check(t, qt.Equals(failed, test.failed))
			itself := make(map[string]int)
			for line := range strings.Lines(server.Query(
				"SELECT calls, replace(query, chr(10), ' ') FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_%'")) {
				calls, query, _ := strings.Cut(line, "|")
				n, err := strconv.Atoi(calls)
				qt.Assert(t, qt.IsNil(err))
				itself[general(query)] += n
			}
			for _, statement := range test.uncounted {
				qt.Check(t, qt.Equals(counted[statement], 100))
				delete(counted, statement)
				delete(itself, statement)
			}
			qt.Check(t, qt.DeepEquals(counted, itself))
			sum := figure{software: "PostgreSQL, " + name, question: "how many statements?",
				command: "--slow 0 postgresql:statement", source: "`pg_stat_statements`"}
			for _, n := range counted {
				sum.measured += uint64(n)
			}
			for _, n := range itself {
				sum.own += uint64(n)
			}
			sum.check(t)
			summary := result.objects("summary")[0]
			qt.Check(t, qt.Equals(summary.Lost+summary.Replaced+summary.Unfinished+summary.Unmatched, 0))
		})
	}
}

// Statements are told apart by who asks, also from hundreds of connections of
// one statement each.
func TestStatementsOfUsers(t *testing.T) { eachPostgres(t, testStatementsOfUsers) }

func testStatementsOfUsers(t *testing.T, of testprog.Release) {
	testprog.RequireBPF(t)
	server := of.StartPostgresForDrivers(t)
	for _, statement := range []string{"CREATE ROLE web LOGIN", "CREATE ROLE batch LOGIN",
		"CREATE DATABASE shop OWNER web"} {
		server.Query(statement)
	}
	script, port := filepath.Join(t.TempDir(), "script"), strconv.Itoa(server.Port)
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte("SELECT 1;\n"), 0o600)))
	bench := func(host, user, application string, n int) {
		command := server.Client("pgbench", "-n", "-C", "-t", strconv.Itoa(n), "-f", script,
			"-h", host, "-p", port, "-U", user, "shop")
		command.Env = append(command.Env, "PGAPPNAME="+application)
		output(t, command)
	}
	r := watching(t, "--json", "--latency", "postgresql:statement", "--by",
		"user,database,client,application", "--where", `user != "gousdt"`, server.File)
	bench("127.0.0.1", "web", "shop front", 200)
	bench(server.SocketDir, "batch", "nightly", 3)
	counts := make(map[string]uint64)
	for _, row := range r.interrupt().objects("row") {
		counts[fmt.Sprint(row.Keys)] += row.Count
	}
	qt.Check(t, qt.DeepEquals(counts, map[string]uint64{
		"map[application:shop front client:127.0.0.1 database:shop user:web]": 200,
		"map[application:nightly client:[local] database:shop user:batch]":    3}))
}

// Cases of one statement and of several.
func TestStatementsThatAreSpecial(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	server := testprog.StartPostgres(t)
	server.Query("CREATE TABLE t (a int)")
	for name, test := range map[string]struct {
		statements []string
		calls      []string // nil: the statements
	}{
		"several in one message are one": {statements: []string{"SELECT 1; SELECT 2"}},
		"a function's own are part of it": {statements: []string{
			"DO $$ BEGIN FOR i IN 1..3 LOOP INSERT INTO t VALUES (i); END LOOP; END $$"}},
		"a cursor's fetches are statements": {statements: []string{"BEGIN",
			"DECLARE c CURSOR FOR SELECT * FROM t", "FETCH 1 FROM c", "FETCH 1 FROM c", "COMMIT"}},
		"copies":              {statements: []string{"COPY (SELECT 1) TO STDOUT"}},
		"prepared by name":    {statements: []string{"PREPARE p AS SELECT 1", "EXECUTE p", "EXECUTE p"}},
		"a rollback succeeds": {statements: []string{"BEGIN", "SELECT 1", "ROLLBACK"}},
		"errors in parts": {statements: []string{"BEGIN", "SAVEPOINT s", "SELECT 1/0", "ROLLBACK TO s",
			"SELECT nothing", "SELECT 2", "ROLLBACK"},
			calls: []string{"BEGIN", "SAVEPOINT s", "SELECT 1/0 failed", "ROLLBACK TO s",
				"SELECT nothing failed", "SELECT 2 failed", "ROLLBACK"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := watching(t, "--json", "--slow", "0", server.File, "postgresql:statement")
			server.Query(test.statements...)
			if test.calls == nil {
				test.calls = test.statements
			}
			var calls []string
			result := r.interrupt()
			for _, span := range result.objects("span") {
				calls = append(calls, span.startText(t))
				if span.Failed {
					calls[len(calls)-1] += " failed"
				}
			}
			qt.Check(t, qt.DeepEquals(calls, test.calls))
			summary := result.objects("summary")[0]
			qt.Check(t, qt.Equals(summary.Lost+summary.Replaced+summary.Unfinished+summary.Unmatched, 0))
		})
	}
}

// A statement that hangs is an open call, also if the server waits for a lock
// before it executes a statement of the extended protocol. The work of other
// processes for a statement is part of it.
func TestStatementsThatHang(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	server := testprog.StartPostgres(t)
	server.Query("CREATE TABLE t (a int)")
	script := filepath.Join(t.TempDir(), "script")
	const waits = "UPDATE t SET a = a + 1;"
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte(waits+"\n"), 0o644)))
	as := []string{"-h", server.SocketDir, "-U", "gousdt"}
	background := func(program string, arguments ...string) io.WriteCloser {
		cmd := server.Client(program, append(as, arguments...)...)
		stdin, err := cmd.StdinPipe()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(cmd.Start()))
		t.Cleanup(func() { stdin.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return stdin
	}
	active := func(n int) {
		testneeds.Await(t, 10*time.Second, "statements that hang", func() bool {
			return server.Query("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' "+
				"AND pid <> pg_backend_pid()") == strconv.Itoa(n)
		})
	}
	r := watching(t, "--json", "--slow", "0", server.File, "postgresql:statement")
	lock := background("psql", "-q", "-d", "postgres")
	_, err := io.WriteString(lock, "BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE;\n")
	qt.Assert(t, qt.IsNil(err))
	testneeds.Await(t, 10*time.Second, "the lock", func() bool {
		return server.Query("SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass") == "1"
	})
	background("pgbench", "-n", "-M", "prepared", "-c", "2", "-j", "2", "-t", "1", "-f", script, "postgres")
	active(2)
	const parallel = "SELECT pg_sleep(600)"
	background("psql", "-d", "postgres", "-c", "SELECT set_config(name, 'on', false) FROM pg_settings "+
		"WHERE name IN ('force_parallel_mode', 'debug_parallel_query')", "-c", parallel)
	active(4) // the statement, and the process that sleeps for it

	var open []string
	for _, call := range r.interrupt().objects("open_call") {
		open = append(open, call.startText(t))
	}
	slices.Sort(open)
	qt.Check(t, qt.DeepEquals(open, []string{parallel, waits, waits}))
}

// Who holds a lock is named by what the session has sent last.
func TestStatementsOfLockHolders(t *testing.T) { eachPostgres(t, testStatementsOfLockHolders) }

func testStatementsOfLockHolders(t *testing.T, of testprog.Release) {
	testprog.RequireBPF(t)
	server := of.StartPostgres(t)
	server.Query("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)")
	const holds, waits = "UPDATE t SET a = 2;", "UPDATE t SET a = 3;"
	flags := []string{"--slow", "0", "--str", "user", "--str", "application", "--str", "activity",
		server.File, "postgresql:transaction", "postgresql:lock__wait"}
	asJSON, asText := watching(t, append(flags, "--json")...), watching(t, flags...)
	session := func(application string, lines ...string) {
		cmd := server.Client("psql", "-q", "-h", server.SocketDir, "-U", "gousdt", "-d", "postgres")
		cmd.Env = append(cmd.Env, "PGAPPNAME="+application)
		stdin, err := cmd.StdinPipe()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(cmd.Start()))
		t.Cleanup(func() { stdin.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
		for _, line := range lines {
			fmt.Fprintln(stdin, line)
		}
	}
	await := func(state string) {
		testneeds.Await(t, 10*time.Second, state, func() bool {
			return server.Query("SELECT count(*) FROM pg_stat_activity WHERE "+state) == "1"
		})
	}
	session("payroll", "BEGIN;", holds)
	await("state = 'idle in transaction' AND query = '" + holds + "'")
	session("web", waits)
	await("wait_event_type = 'Lock' AND query = '" + waits + "'")
	open := func(r *running) (found []string) {
		for _, call := range r.interrupt().objects("open_call") {
			var now object
			qt.Assert(t, qt.IsNil(json.Unmarshal(call.Now, &now)))
			text := call.Pair
			for _, a := range now.Args[len(now.Args)-3:] {
				text += " " + *a.Text
			}
			found = append(found, text)
		}
		return found
	}
	transactions := []string{"postgresql:transaction gousdt payroll " + holds,
		"postgresql:transaction gousdt web " + waits}
	qt.Check(t, qt.DeepEquals(open(asJSON),
		append(slices.Clip(transactions), "postgresql:lock__wait gousdt web "+waits)))
	late := watching(t, append(flags, "--json")...) // after it has happened
	qt.Check(t, qt.DeepEquals(open(late), transactions))
	qt.Check(t, qt.Matches(asText.interrupt().stdout, `(?s).*transaction  open .*user="gousdt" `+
		`application="payroll" activity="BEGIN;"  -> activity="`+regexp.QuoteMeta(holds)+`"\n.*lock__wait  open .*`))
}

// How long sessions wait for their client is known in every protocol, and which
// of that is in a transaction.
func TestIdleSessions(t *testing.T) { eachPostgres(t, testIdleSessions) }

func testIdleSessions(t *testing.T, of testprog.Release) {
	testprog.RequireBPF(t)
	server := of.StartPostgres(t)
	server.Query("CREATE TABLE t AS SELECT 1 AS v")
	script := filepath.Join(t.TempDir(), "idle.sql")
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte("BEGIN;\nUPDATE t SET v = v + 1;\n\\sleep 300 ms\n"+
		"SELECT count(*) FROM t;\nCOMMIT;\n\\sleep 150 ms\n"), 0o644)))
	const status = "postgresql:statement__status"
	for _, mode := range []string{"simple", "extended", "prepared"} {
		for where, want := range map[string]uint64{"": 5, " && global.CurTransactionContext != 0": 3} {
			r := watching(t, "--json", "--latency", status+".."+status, server.File, "--where",
				`start.status == 0 && status != 0 && duration > 100ms && application == "idle"`+where)
			client := server.Client("pgbench", "-n", "-M", mode, "-t", "3", "-f", script,
				"-h", server.SocketDir, "-U", "gousdt", "postgres")
			client.Env = append(client.Env, "PGAPPNAME=idle")
			output(t, client)
			rows := r.interrupt().objects("row")
			qt.Assert(t, qt.HasLen(rows, 1), qt.Commentf("%s%s", mode, where))
			// Nothing follows the last pause. A busy machine may hold the
			// client up for as long, once. Waits that count twice are more.
			n := rows[0].Count
			qt.Check(t, qt.IsTrue(n == want || n == want+1), qt.Commentf("%d: %s%s", n, mode, where))
		}
	}
}

// The statement of a session that has ended is not that of the session or the
// parallel worker that starts in its place.
func TestStatementsOfStartingSessions(t *testing.T) {
	eachPostgres(t, testStatementsOfStartingSessions)
}

func testStatementsOfStartingSessions(t *testing.T, of testprog.Release) {
	testprog.RequireBPF(t)
	server := of.StartPostgres(t)
	server.Query("CREATE TABLE t AS SELECT generate_series(1, 100000) AS a", "ANALYZE t")
	server.Query("SELECT 'ended'")
	rows := watching(t, "--count", "--by", "activity", "--json", server.File, "postgresql:buffer__read__done")
	calls := watching(t, "--slow", "0", "--str", "activity", server.File, "postgresql:buffer__read")
	for range 3 {
		server.Query("SELECT 'running'")
	}
	server.Query("SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; " +
		"SET parallel_tuple_cost = 0; SELECT count(*) FROM t")
	end := rows.interrupt()
	qt.Check(t, qt.StringContains(end.stdout, "SELECT 'running'"))
	qt.Check(t, qt.Not(qt.StringContains(end.stdout, "SELECT 'ended'")))
	stdout := calls.interrupt().stdout
	qt.Check(t, qt.StringContains(stdout, "SELECT 'running'"))
	qt.Check(t, qt.Not(qt.StringContains(stdout, "SELECT 'ended'")))
}

// A table of statements that fail says which of them no probe shows, and how to
// see those that fail when they commit.
func TestStatementsThatFailUnseen(t *testing.T) { eachPostgres(t, testStatementsThatFailUnseen) }

func testStatementsThatFailUnseen(t *testing.T, of testprog.Release) {
	testprog.RequireBPF(t)
	server := of.StartPostgres(t)
	server.Query("CREATE TABLE p (id int PRIMARY KEY)",
		"CREATE TABLE c (p int REFERENCES p DEFERRABLE INITIALLY DEFERRED)")
	script := filepath.Join(t.TempDir(), "insert.sql")
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte("INSERT INTO c VALUES (1);\n"), 0o644)))
	failing := func(pair, key string, modes ...string) result {
		r := watching(t, "--json", "--latency", pair, "--where", "failed", "--by", key, server.File)
		for _, mode := range modes {
			client := server.Client("pgbench", "-n", "-M", mode, "-t", "1", "-f", script,
				"-h", server.SocketDir, "-U", "gousdt", "postgres")
			out, err := client.CombinedOutput()
			qt.Check(t, qt.IsNotNil(err))
			qt.Check(t, qt.StringContains(string(out), "foreign key"))
		}
		return r.interrupt()
	}
	all := []string{"simple", "extended", "prepared"}
	r := failing("postgresql:statement", "query", all...)
	qt.Check(t, qt.StringContains(r.stderr, "not seen: statements that fail while "))
	qt.Check(t, qt.StringContains(r.stderr, "--latency postgresql:transaction --where failed --by activity"))
	rows := r.objects("row")
	qt.Assert(t, qt.HasLen(rows, 1))
	qt.Check(t, qt.Equals(rows[0].Count, 1)) // of the simple protocol
	rows = failing("postgresql:transaction", "activity", all...).objects("row")
	qt.Assert(t, qt.HasLen(rows, 1))
	qt.Check(t, qt.Equals(rows[0].Count, 3))
	qt.Check(t, qt.Equals(rows[0].Keys["activity"].(string), "INSERT INTO c VALUES (1);"))
}

// Statements and transactions fail at one probe. Each call has its own name.
func TestStatementsOfTransactionsThatFail(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	server := testprog.StartPostgres(t)
	r := watching(t, "--slow", "0", server.File, "postgresql:statement", "postgresql:transaction")
	server.Query("BEGIN", "SELECT 1/0", "ROLLBACK")
	stdout := r.interrupt().stdout
	qt.Check(t, qt.Matches(stdout, `(?s).*statement +failed  query="SELECT 1/0".*`))
	qt.Check(t, qt.Matches(stdout, `(?s).*transaction +failed  local_id=\d+\n.*`))
}

// A name that the definitions of other programs give an argument is the
// server's own, where its probes are asked for.
func TestStatementsHaveUsersAtEachProbe(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	server := testprog.StartPostgres(t)
	r := watching(t, "--str", "user", server.File, "postgresql:query__start")
	server.Query("SELECT 1")
	qt.Check(t, qt.Matches(r.interrupt().stdout, `(?s).*query="SELECT 1" user="\w+"\n.*`))
}

// A statement whose server process is killed is printed with its SQL text. The
// others of the server, which ends them, exit.
func TestStatementsOfKilledServers(t *testing.T) {
	eachPostgres(t, testStatementsOfKilledServers)
}

func testStatementsOfKilledServers(t *testing.T, of testprog.Release) {
	testprog.RequireBPF(t)
	server := of.StartPostgres(t)
	r := watching(t, "--json", "--slow", "0", server.File, "postgresql:statement", "postgresql:transaction")
	asText := watching(t, "--slow", "0", "--str", "activity", server.File, "postgresql:transaction")
	var all []*exec.Cmd
	pid := 0
	for _, sleep := range []string{"SELECT pg_sleep(4711)", "SELECT pg_sleep(4712)"} {
		cmd := server.Client("psql", "-h", server.SocketDir, "-U", "gousdt", "-d", "postgres", "-c", sleep)
		qt.Assert(t, qt.IsNil(cmd.Start()))
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		all = append(all, cmd)
		testneeds.Await(t, 10*time.Second, sleep, func() bool {
			n, _ := strconv.Atoi(server.Query("SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query = '" +
				sleep + "'"))
			pid = n
			return n != 0
		})
	}
	qt.Assert(t, qt.IsNil(syscall.Kill(pid, syscall.SIGKILL)))
	for _, cmd := range all {
		_ = cmd.Wait() // the server has ended the connections
	}
	ended, transactions := make(map[string]string), []string{}
	result := r.interrupt()
	for _, span := range result.objects("span") {
		switch {
		case span.Ended == "":
		case span.Pair == "postgresql:statement":
			ended[span.startText(t)] = span.Ended
			qt.Check(t, qt.Equals(span.PID == pid, strings.HasPrefix(span.Ended, "killed")))
		default:
			transactions = append(transactions, span.Ended)
		}
	}
	qt.Check(t, qt.DeepEquals(ended, map[string]string{
		"SELECT pg_sleep(4711)": "exited with status 2", "SELECT pg_sleep(4712)": "killed by SIGKILL"}))
	slices.Sort(transactions)
	qt.Check(t, qt.DeepEquals(transactions, []string{"exited with status 2", "killed by SIGKILL"}))
	summary := result.objects("summary")[0]
	qt.Check(t, qt.Equals(summary.Killed, 2))
	qt.Check(t, qt.Equals(summary.Exited, 2))
	qt.Check(t, qt.Equals(summary.Replaced+summary.Unfinished, 0))
	qt.Check(t, qt.Matches(asText.interrupt().stdout,
		`(?s).*transaction  killed by SIGKILL \(variables as at its start\)  local_id=\d+ activity=.*`))
}

// startText returns the text that a call has started with.
func (o *object) startText(t *testing.T) string {
	t.Helper()
	var start object
	qt.Assert(t, qt.IsNil(json.Unmarshal(o.Start, &start)))
	return *start.Args[0].Text
}

// Savepoints that are numbered are one row for the server, since version 17,
// and for --normalize.
func TestStatementsOfSavepoints(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	for _, root := range releases(t) {
		t.Run(filepath.Base(root), func(t *testing.T) {
			server := testprog.Release(root).StartPostgresForDrivers(t)
			server.Query("SELECT pg_stat_statements_reset()")
			r := watching(t, "--json", "--latency", "postgresql:statement", "--by", "query",
				"--normalize", "sql", server.File)
			statements := []string{"BEGIN"}
			for i := range 3 {
				for _, form := range []string{"SAVEPOINT s_%d", "RELEASE s_%d", `SAVEPOINT "s %d"`,
					`ROLLBACK TO "s %d"`, `ROLLBACK TO SAVEPOINT "s %d"`, `RELEASE SAVEPOINT "s %d"`} {
					statements = append(statements, fmt.Sprintf(form, i))
				}
			}
			server.Query(append(statements, "COMMIT")...)
			// For the server RELEASE is RELEASE SAVEPOINT.
			form := func(text string) string { return strings.ReplaceAll(general(text), " SAVEPOINT", "") }
			measured, itself := make(map[string]int), make(map[string]int)
			for _, row := range r.interrupt().objects("row") {
				measured[form(row.Keys["query"].(string))] += int(row.Count)
			}
			for line := range strings.Lines(server.Query(
				"SELECT calls, query FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_%'")) {
				calls, query, _ := strings.Cut(line, "|")
				n, err := strconv.Atoi(calls)
				qt.Assert(t, qt.IsNil(err))
				itself[form(query)] += n
			}
			qt.Check(t, qt.DeepEquals(measured, itself))
			qt.Check(t, qt.Equals(measured["SAVEPOINT ?"], 6))
		})
	}
}

var literal = regexp.MustCompile(`\$\d+|'[^']*'|-?\b\d+\b`)

// general is a statement without its constants and parameters, cut.
func general(text string) string {
	text = strings.ReplaceAll(strings.TrimRight(strings.TrimSpace(text), ";"), "\n", " ")
	text = literal.ReplaceAllString(text, "?")
	return text[:min(len(text), 90)]
}

func output(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%v: %s", cmd, out))
}

func python(t *testing.T, driver, port string) *exec.Cmd {
	t.Helper()
	const interpreter = "/usr/bin/python3" // Debian has the drivers for it
	if err := exec.Command(interpreter, "-c", "import "+driver).Run(); err != nil {
		testneeds.Missing(t, "%s has no %s (Debian: python3-%s)", interpreter, driver, driver)
	}
	return exec.Command(interpreter, filepath.Join(drivers, "statements.py"), driver, port)
}

func jdbc(t *testing.T, port string) *exec.Cmd {
	t.Helper()
	const library = "/usr/share/java/postgresql.jar"
	if _, err := os.Stat(library); err != nil {
		testneeds.Missing(t, "%s is not there (Debian: libpostgresql-jdbc-java)", library)
	}
	classes := t.TempDir()
	output(t, exec.Command(testneeds.Tool(t, "javac", "default-jdk-headless"), "-d", classes,
		filepath.Join(drivers, "Statements.java")))
	return exec.Command("java", "-cp", classes+":"+library, "Statements", port)
}

func pgx(t *testing.T, port string) *exec.Cmd {
	t.Helper()
	program := filepath.Join(t.TempDir(), "pgx")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = filepath.Join(drivers, "pgx")
	output(t, build)
	return exec.Command(program, port)
}

// A transaction that is prepared is not one of its session any more.
func TestPreparedTransactions(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	server := testprog.StartPostgres(t)
	r := watching(t, "--latency", "postgresql:transaction", "-p", strconv.Itoa(server.PID), "-f", "--json")
	server.Query("BEGIN", "PREPARE TRANSACTION 'kept'", "BEGIN", "COMMIT", "BEGIN",
		"PREPARE TRANSACTION 'kept too'")
	summary := r.interrupt().objects("summary")[0]
	qt.Check(t, qt.Equals(summary.Left, 2))
	qt.Check(t, qt.Equals(summary.Replaced+summary.Unfinished+summary.Exited, 0))
}

// A statement that hangs since before is listed, with its age, while it hangs.
func TestStatementsThatBeganBefore(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	server := testprog.StartPostgres(t)
	began := time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Refuse("SELECT pg_sleep(1234)")
	}()
	const sleeps = "FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(1234)'"
	testneeds.Await(t, 10*time.Second, "it has begun",
		func() bool { return server.Query("SELECT count(*) "+sleeps) != "0" })
	open := func(r result) (all []object) { // other tests have servers of the same file
		for _, call := range r.objects("open_call") {
			if call.startText(t) == "SELECT pg_sleep(1234)" {
				all = append(all, call)
			}
		}
		return all
	}
	result := watching(t, "--slow", "0", server.File, "postgresql:statement").interrupt()
	qt.Check(t, qt.StringContains(result.stdout, `postgresql:statement  open since before  query="SELECT pg_sleep(1234)"`))
	result = watching(t, "--slow", "1h", "--json", server.File, "postgresql:statement").interrupt()
	qt.Check(t, qt.HasLen(open(result), 0))
	r := watching(t, "--slow", "0", "--json", server.File, "postgresql:statement")
	least := time.Since(began) / 2
	calls := open(r.interrupt())
	qt.Assert(t, qt.HasLen(calls, 1))
	qt.Check(t, qt.IsTrue(calls[0].Duration >= least && calls[0].Duration <= time.Since(began)),
		qt.Commentf("%v is not between %v and %v", calls[0].Duration, least, time.Since(began)))

	family := []string{"-p", strconv.Itoa(server.PID), "-f"}
	for where, want := range map[string]int{
		"global.PostPortNumber >= 0": 1, "!(global.PostPortNumber >= 0)": 0, "pid > 0": 0,
		`database == "postgres" && client == "[local]"`: 1, `user == "nobody"`: 0,
		`str(global.MyProcPort->remote_host, 2) != "[l"`: 0,
	} {
		args := append([]string{"--json", "--slow", "0", "--where", where, "postgresql:statement"}, family...)
		result := watching(t, args...).interrupt()
		qt.Check(t, qt.HasLen(open(result), want), qt.Commentf("%v", args))
		unsearched := result.objects("summary")[0].Unsearched > 0
		qt.Check(t, qt.Equals(unsearched, where == "pid > 0"), qt.Commentf("%v", args))
	}
	result = watching(t, append(family, "--json", "--slow", "0", "postgresql:statement")...).interrupt()
	qt.Check(t, qt.HasLen(open(result), 1))

	r = watching(t, "--json", "--slow", "0", server.File, "postgresql:statement")
	server.Query("SELECT pg_cancel_backend(pid) " + sleeps)
	<-ended
	qt.Check(t, qt.HasLen(open(r.interrupt()), 0))
}
