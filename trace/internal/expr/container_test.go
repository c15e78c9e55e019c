// SPDX-License-Identifier: BSD-2-Clause

package expr

import (
	"errors"
	"testing"

	"github.com/go-quicktest/qt"
)

// A container is its control groups, each of which is one more comparison.
func TestContainers(t *testing.T) {
	find := func(text string) ([]uint64, error) {
		switch text {
		case "one":
			return []uint64{7}, nil
		case "two":
			return []uint64{7, 8}, nil
		case "many":
			return make([]uint64, maxComparisons+1), nil
		}
		return nil, errors.New("there is none")
	}
	for source, want := range map[string]string{
		`container == "one"`:              "cgroup == 7",
		`container != "one"`:              "cgroup != 7",
		`container == "two"`:              "(cgroup == 7 || cgroup == 8)",
		`container != "two"`:              "(cgroup != 7 && cgroup != 8)",
		`!(container == "two" || pid==1)`: "!((cgroup == 7 || cgroup == 8) || pid == 1)",
	} {
		node, err := ParseCondition(source, nil, find)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", source))
		same, err := ParseCondition(want, nil, nil)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(node.String(), same.String()), qt.Commentf("%s", source))
	}
	for source, want := range map[string]string{
		`pid == 1 && container == "none"`: `.*at column 13: there is none`,
		`container == "many"`:             `.*at column 1: the container has more control groups than there can be comparisons`,
	} {
		_, err := ParseCondition(source, nil, find)
		qt.Check(t, qt.ErrorMatches(err, want))
	}
}
