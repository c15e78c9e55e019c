// SPDX-License-Identifier: BSD-2-Clause

// Package testschema compares the JSON of the commands with its schemas.
package testschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// A Schema is a compiled schema of docs. Users rely on it for the JSON of the
// commands.
type Schema struct {
	compiled *jsonschema.Schema
}

// Load compiles docs/NAME.schema.json for the tests of a command, more strictly
// than it is for users: a member that it does not describe is an error. Later
// versions may print more, but all that is printed now must be described. It
// returns nil on an emulated machine, which has no docs: the output does not
// depend on the machine.
func Load(t testing.TB, name string) *Schema {
	t.Helper()
	path := filepath.Join("..", "..", "docs", name+".schema.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && testneeds.IsGuest() {
		return nil
	}
	qt.Assert(t, qt.IsNil(err))
	var document map[string]any
	qt.Assert(t, qt.IsNil(json.Unmarshal(data, &document)))
	restrict(document, "")
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	qt.Assert(t, qt.IsNil(compiler.AddResource(name, document)))
	compiled, err := compiler.Compile(name)
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", path))
	return &Schema{compiled}
}

// Check fails the test unless a document is one of the schema.
func (s *Schema) Check(t testing.TB, document []byte) {
	t.Helper()
	if s == nil {
		return
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", document))
	if err := s.compiled.Validate(instance); err != nil {
		t.Fatalf("%s\n%v", bytes.TrimSpace(document), err)
	}
}

// restrict forbids members that are not described, in objects and references
// below a key. Definitions and the parts of an object describe some members
// only: the others are for what refers to them.
func restrict(node any, key string) {
	switch node := node.(type) {
	case []any:
		for _, part := range node {
			restrict(part, key)
		}
	case map[string]any:
		isWhole := key != "$defs" && !strings.HasSuffix(key, "Of") && node["properties"] != nil
		if isWhole || key != "allOf" && node["$ref"] != nil {
			node["unevaluatedProperties"] = false
		}
		for name, value := range node {
			named, ok := value.(map[string]any)
			if !ok || name != "properties" && name != "$defs" {
				restrict(value, name)
				continue
			}
			for _, schema := range named {
				restrict(schema, name)
			}
		}
	}
}
