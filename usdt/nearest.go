// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
)

// mostCompared bounds the work for a hint: a file may carry a million probes.
const mostCompared = 10_000

// nearest returns up to three probes of a file that are spelled most like one
// of the patterns.
func nearest(file *elfnote.File, patterns []elfnote.Pattern) []string {
	type candidate struct {
		probe    string
		distance int
	}
	var candidates []candidate
	seen := make(map[string]bool)
	for site, err := range file.Sites() {
		probe := site.Provider + ":" + site.Name
		if err != nil || seen[probe] {
			continue
		}
		if len(seen) == mostCompared {
			break
		}
		seen[probe] = true
		best := -1
		for _, pattern := range patterns {
			// More than half of it spelled otherwise is another name, not a
			// slip.
			wanted, compared := pattern.String(), probe
			if name, any := strings.CutPrefix(wanted, "*:"); any || !strings.Contains(wanted, ":") {
				wanted, compared = name, site.Name
			}
			if d := editDistance(wanted, compared); d <= len(wanted)/2 && (best < 0 || d < best) {
				best = d
			}
		}
		if best >= 0 {
			candidates = append(candidates, candidate{probe, best})
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })

	var probes []string
	for _, c := range candidates[:min(3, len(candidates))] {
		probes = append(probes, c.probe)
	}
	return probes
}

// joinPatterns says what was asked for.
func joinPatterns(patterns []elfnote.Pattern) string {
	texts := make([]string, 0, len(patterns))
	for _, pattern := range patterns {
		texts = append(texts, pattern.String())
	}
	return strings.Join(texts, " or ")
}

// editDistance counts the bytes to insert, delete or change to make b of a
// (Levenshtein).
func editDistance(a, b string) int {
	const longest = 128 // beyond that the difference is large anyway, and the work quadratic
	a, b = a[:min(len(a), longest)], b[:min(len(b), longest)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
