// SPDX-License-Identifier: BSD-2-Clause

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var quantity = regexp.MustCompile(`[0-9.]+ (ns|µs|ms|s|KiB|MiB)\b`)

// measuredProblems finds costs in rows of README.md that link to
// docs/measurements.md, which was made anew since and has them no longer.
func measuredProblems(root string) (problems []string, err error) {
	measured, err := os.ReadFile(filepath.Join(root, "docs", "measurements.md"))
	if err != nil {
		return nil, err
	}
	readme := filepath.Join(root, "README.md")
	text, err := os.ReadFile(readme)
	if err != nil {
		return nil, err
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if !strings.HasPrefix(line, "|") || !strings.Contains(line, "(docs/measurements.md") {
			continue
		}
		for _, cost := range quantity.FindAllString(line, -1) {
			if !strings.Contains(string(measured), " "+cost+" ") {
				problems = append(problems, fmt.Sprintf("%s:%d: docs/measurements.md has no %s",
					readme, number, cost))
			}
		}
	}
	return problems, nil
}
