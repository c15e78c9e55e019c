// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestNormalize(t *testing.T) {
	for _, test := range []struct{ dialect, text, want string }{
		{"sql", "SELECT abalance FROM pgbench_accounts WHERE aid = 17;",
			"SELECT abalance FROM pgbench_accounts WHERE aid = ?"},
		{"sql", "UPDATE t SET a = a + -2312 WHERE b = 'it''s'",
			"UPDATE t SET a = a + ? WHERE b = ?"},
		{"sql", `select 'a\', "Id" from t -- 5`, `select ?, "Id" from t`},
		{"mysql", `select 'a\', 5' from t`, `select ? from t`},
		{"sql", "select x\n\tfrom t where id in (1, 2, 3)", "select x from t where id in ( ? )"},
		{"sql", "/* traceparent='00-ab' */ select $1 as y", "select $1 as y"},
		{"sql", "select * from t where name = 'cut her", "select * from t where name = ?"},
		{"sql", "select 1 /*traceparent='00-4bf9", "select ?"},
		{"sql", "select $a$cut her", "select ?"},
		{"mysql", "select 5 /*cut her", "select ?"},
		{"sql", "/* a /* b */ SECRET */ select 1 /* /* */ */ from t", "select ? from t"},
		{"sql", "select 1 /* a /* b */ SECRET", "select ?"},
		{"mysql", "select x--1, y from t -- 5", "select x - ?, y from t"},
		{"mysql", "select 1 --\tSECRET\nfrom t--", "select ? from t"},
		{"sql", "select 1_000_567, 0x_ff, 0b1_01, 1_0.5_0e1_0, t1_0 from t",
			"select ?, ?, ?, ?, t1_0 from t"},
		{"sql", "select x-1, f(x) -2, $1-3, 4-5", "select x - ?, f ( x ) - ?, $1 - ?, ? - ?"},
		{"sql", "select x+1 from t", "select x + ? from t"},
		{"sql", "select -1 where a in (-1, +2) and b = -3 and c between -4 and -5 limit -6",
			"select ? where a in ( ? ) and b = ? and c between ? and ? limit ?"},
		{"sql", "", ""},
	} {
		qt.Check(t, qt.Equals(normalizer(test.dialect)(test.text), test.want))
	}
	_, err := parseCommandLine([]string{"-a", "--count", "--normalize", "html", "*"})
	qt.Check(t, qt.ErrorMatches(err, `--normalize "html": want sql or mysql`))
}

// Texts are untrusted, and may be no SQL.
func FuzzNormalize(f *testing.F) {
	for _, text := range []string{"select $a$ b $a$ 'c\\' \"d", "[a].`b` /* - -- # 0x1e-5 e'\\",
		"\xff\x00日"} {
		f.Add(text)
	}
	sql, mysql := normalizer("sql"), normalizer("mysql")
	f.Fuzz(func(t *testing.T, text string) {
		sql(text)
		mysql(text)
	})
}
