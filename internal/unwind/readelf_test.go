// SPDX-License-Identifier: BSD-2-Clause

package unwind

import (
	"bufio"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testneeds"
)

// registerNames are what readelf calls the registers, for those that functions
// save.
var registerNames = map[elf.Machine]func(n int) string{
	elf.EM_X86_64: func(n int) string {
		return strings.Fields("rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 ra")[n]
	},
	elf.EM_AARCH64: func(n int) string {
		if n == 31 {
			return "sp"
		}
		return "x" + strconv.Itoa(n)
	},
	elf.EM_RISCV: func(n int) string {
		return strings.Fields("zero ra sp gp tp t0 t1 t2 s0 s1 a0 a1 a2 a3 a4 a5 a6 a7 s2 s3 s4 s5 s6 s7 s8 s9 s10 s11 t3 t4 t5 t6")[n]
	},
	elf.EM_S390: func(n int) string { return "r" + strconv.Itoa(n) },
}

var entryPattern = regexp.MustCompile(`FDE cie=\S+ pc=([0-9a-f]+)\.\.([0-9a-f]+)`)

// alias is another name of the register in front.
var alias = regexp.MustCompile(` \(\w+\)`)

// readelf prints the rows of all functions: each must be the same here, at its
// beginning and to its end.
func TestRowsAreThoseOfReadelf(t *testing.T) {
	readelf := testneeds.Tool(t, "readelf", "binutils")
	files := libraries()
	qt.Assert(t, qt.Not(qt.HasLen(files, 0)))
	for _, path := range files {
		t.Run(strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", " "), func(t *testing.T) {
			rows := compareRows(t, readelf, path)
			qt.Check(t, qt.IsTrue(rows > 1000), qt.Commentf("%d rows", rows))
		})
	}
}

// libraries returns large libraries of all machines that are here.
func libraries() []string {
	var found []string
	for _, pattern := range []string{
		"/usr/lib*/libc.so.6", "/usr/lib*/*/libc.so.6", "/usr/lib/*/libstdc++.so.6",
		"/usr/lib/*/libpython3.*.so.1.0",
		"/usr/*-linux-gnu/lib/libc.so.6", "/usr/bin/python3.[0-9]*",
	} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			file, err := elffile.Open(path)
			if err != nil {
				continue
			}
			if file.Words.Wide && registerNames[file.Machine] != nil {
				found = append(found, path)
			}
			file.Close()
		}
	}
	return found
}

// compareRows returns how many rows it has compared.
func compareRows(t *testing.T, readelf, path string) int {
	file, err := elffile.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	table, err := readTable(file)
	qt.Assert(t, qt.IsNil(err))
	byHeader := table.index
	qt.Assert(t, qt.IsTrue(len(byHeader) > 100))
	// The index that is made where the header has none is the same.
	table.index = nil
	table.makeIndex(nil)
	qt.Assert(t, qt.IsTrue(slices.Equal(table.index, byHeader)))

	cmd := exec.CommandContext(t.Context(), readelf, "-W", "--debug-dump=frames-interp", path)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	defer func() {
		out.Close() // so that it ends where not all was read
		cmd.Wait()
	}()

	known := map[string]bool{"CFA": true, "ra": true}
	for n := range table.registers {
		known[registerNames[file.Machine](n)] = true
	}
	rows := 0
	var columns []string
	var end uint64
	pending, at := map[string]string{}, uint64(0)
	check := func(to uint64) {
		if len(pending) == 0 || to <= at {
			return
		}
		rows++
		for _, address := range []uint64{at, to - 1} {
			got, err := table.row(address)
			if err != nil {
				t.Fatalf("%#x: %v, not %v", address, err, pending)
			}
			if text := got.texts(file.Machine, known,
				columns); fmt.Sprint(text) != fmt.Sprint(pending) {
				t.Fatalf("%#x: %v, not %v", address, text, pending)
			}
		}
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	inEntry := false
	for lines.Scan() {
		line := lines.Text()
		fields := strings.Fields(line)
		if m := entryPattern.FindStringSubmatch(line); m != nil {
			end, _ = strconv.ParseUint(m[2], 16, 64)
			inEntry = true
			continue
		}
		switch {
		case len(fields) == 0 || strings.Contains(line, " CIE "):
			check(end)
			pending, inEntry = nil, false
		case !inEntry:
		case fields[0] == "LOC":
			columns = fields[1:]
		default:
			start, err := strconv.ParseUint(fields[0], 16, 64)
			if err != nil {
				continue
			}
			check(start)
			at, pending = start, make(map[string]string)
			cells := alias.ReplaceAllString(line, "")
			for i, cell := range strings.Fields(cells)[1:] {
				if known[columns[i]] { // not floating point registers
					pending[columns[i]] = table.normal(cell)
				}
			}
		}
	}
	check(end)
	qt.Assert(t, qt.IsNil(lines.Err()))
	return rows
}

// normal returns a cell as far as it can be told from others here: registers
// that are the same, and what is in registers that the kernel does not give,
// are like those that nothing is known about.
func (t *Table) normal(cell string) string {
	if number, ok := strings.CutPrefix(cell, "r"); ok {
		if n, err := strconv.Atoi(number); err == nil && n >= t.registers {
			return "u"
		}
	}
	if cell == "s" {
		return "u"
	}
	return cell
}

// texts returns the row as readelf prints it.
func (r *row) texts(
	machine elf.Machine, known map[string]bool, columns []string,
) map[string]string {
	name := registerNames[machine]
	texts := make(map[string]string)
	if r.frame.kind == isExpression {
		texts["CFA"] = "exp"
	} else {
		texts["CFA"] = fmt.Sprintf("%s%+d", name(int(r.frame.register)), r.frame.offset)
	}
	for _, column := range columns {
		if _, ok := texts[column]; !ok && known[column] {
			texts[column] = "u"
		}
	}
	for _, rule := range r.rules {
		column := name(rule.number)
		if rule.number == r.returns {
			column = "ra"
		}
		switch rule.kind {
		case isSaved:
			texts[column] = fmt.Sprintf("c%+d", rule.offset)
		case isOffset:
			texts[column] = fmt.Sprintf("v%+d", rule.offset)
		case isRegister:
			texts[column] = fmt.Sprintf("r%d", rule.register)
		case isSavedAt:
			texts[column] = "exp"
		case isExpression:
			texts[column] = "vexp"
		}
	}
	return texts
}
