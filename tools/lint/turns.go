// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// maxTurns is how many turns of phrase comments may have in all that are to be
// written otherwise. It only ever becomes lower.
const maxTurns = 153

// turn is a turn of phrase that has to be read twice, and what to write.
type turn struct{ pattern, write string }

var turns = []turn{
	{`is as (how|what)`, "is the number of, is the"},
	{`has (who|what) [a-z]+ (find|see|do|know)\b`, "wakes, lets, and a noun"},
	{`(is|are) which\b`, "is the ... that"},
	{`(^|[.:;,(] )(of|by|for|from|to) (which|whom)`, "two sentences"},
	{`whoever`, "a process that, the caller, a user"},
	{`(one|those|people) who (pass|call|trace|attach|read)`, "the caller, a user"},
	{`somebody who`, "a user, a process that"},
	{`who passes`, "the caller"},
	{`by itself`, "alone, on its own"},
	{`so many`, "that many"},
	{`for so long`, "until, that long"},
	{`in vain`, "without effect"},
	{`(is|are) told of`, "is reported"},
	{`what is left behind`, "abandoned, remains"},
	{`what is another's`, "another owner's"},
}

var turnPatterns = sync.OnceValue(func() (patterns []*regexp.Regexp) {
	for _, t := range turns {
		patterns = append(patterns, regexp.MustCompile(`(?i)(\b|^)`+t.pattern+`\b`))
	}
	return patterns
})

// turns finds turns of phrase in the comments of a file.
func (f *file) turns() []string {
	var problems []string
	for _, group := range f.syntax.Comments {
		text := strings.Join(strings.Fields(strings.ReplaceAll(group.Text(), "\n", " ")), " ")
		for i, pattern := range turnPatterns() {
			for _, found := range pattern.FindAllString(text, -1) {
				problems = append(problems, f.problem(f.set.Position(group.Pos()).Line,
					"%q in a comment is read twice: %s", strings.TrimLeft(found, ".:;,( "), turns[i].write))
			}
		}
	}
	return problems
}

// turnProblems returns the turns of all files if they are too many.
func turnProblems(found []string, most int) []string {
	if len(found) <= most {
		return nil
	}
	return append(found, fmt.Sprintf("comments have %d turns that are read twice, not %d at most",
		len(found), most))
}
