// SPDX-License-Identifier: BSD-2-Clause

// Package expr reads the expressions of package trace: conditions, which filter
// hits, and terms, which name a value.
//
// The grammar, in the usual order of precedence:
//
//	condition  = and { "||" and }
//	and        = unary { "&&" unary }
//	unary      = "!" unary | "(" condition ")" | comparison
//	comparison = term [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) term ]
//	term       = operand [ "&" integer ]
//	operand    = number | text | name | "str" "(" name [ "," integer ] ")"
//	name       = argument [ "->" member { ( "->" | "." ) member } ] | "global" "." symbol
//	           | "pid" | "tid" | "uid" | "gid" | "cpu" | "cgroup" | "comm" | "cookie" | "provider" | ...
//
// A number is decimal, hexadecimal (0x), octal (0o) or binary (0b), with an
// optional minus, or a decimal fraction. A text stands in double quotes with
// the escapes of Go. A term alone is a condition that holds where the value is
// not 0.
//
// The package knows nothing of probes, machines or BPF: it turns text into a
// tree and tells what can never be right.
package expr
