// SPDX-License-Identifier: BSD-2-Clause

package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"

	"github.com/gousdt/gousdt/internal/helptext"
)

// Commands are those that have a page of reference, docs/NAME.md.
var commands = []string{"usdtlist", "usdttrace"}

func referencePath(root, command string) string {
	return filepath.Join(root, "docs", command+".md")
}

// reference returns the page about a command. It is made of the text of -h, as
// the man page is.
func reference(root, command string) (string, error) {
	path := filepath.Join(root, "cmd", command, "help.go")
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return "", err
	}
	var usage *ast.BasicLit
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && spec.Names[0].Name == "usage" &&
			len(spec.Values) == 1 {
			usage, _ = spec.Values[0].(*ast.BasicLit)
		}
		return true
	})
	if usage == nil {
		return "", fmt.Errorf("%s: no constant usage", path)
	}
	text, err := strconv.Unquote(usage.Value)
	if err != nil {
		return "", err
	}
	return helptext.Parse(text).Markdown(command), nil
}

func referenceProblems(root string) (problems []string, err error) {
	for _, command := range commands {
		want, err := reference(root, command)
		if err != nil {
			return nil, err
		}
		path := referencePath(root, command)
		if have, _ := os.ReadFile(path); string(have) != want {
			problems = append(problems, path+": is not what -h says: make docs")
		}
	}
	return problems, nil
}

func writeReference(root string) error {
	for _, command := range commands {
		text, err := reference(root, command)
		if err != nil {
			return err
		}
		if err := os.WriteFile(referencePath(root, command), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
