// SPDX-License-Identifier: BSD-2-Clause

package testprog

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

// LoadSchema compiles docs/NAME.schema.json for the tests of a package of cmd,
// more strictly than it is for users: a member that it does not describe is an
// error. Later versions may print more, but all that is printed now must be
// described. It returns nil on an emulated machine, which has no docs: the
// output does not depend on the machine.
func LoadSchema(t testing.TB, name string) *Schema {
	t.Helper()
	path := filepath.Join("..", "..", "docs", name+".schema.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && testneeds.IsGuest() {
		return nil
	}
	qt.Assert(t, qt.IsNil(err))
	var document map[string]any
	qt.Assert(t, qt.IsNil(json.Unmarshal(data, &document)))
	mixins := make(map[string]bool)
	findMixins(document, mixins)
	definitions := document["$defs"].(map[string]any)
	for name, definition := range definitions {
		restrict(definition, mixins["#/$defs/"+name])
	}
	restrict(document, document["properties"] == nil)
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

// findMixins finds the definitions that others include by allOf: what they do
// not describe, the others may.
func findMixins(node any, found map[string]bool) {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			if list, ok := value.([]any); ok && key == "allOf" {
				for _, part := range list {
					if reference, ok := part.(map[string]any)["$ref"].(string); ok {
						found[reference] = true
					}
				}
			}
			findMixins(value, found)
		}
	case []any:
		for _, value := range node {
			findMixins(value, found)
		}
	}
}

// restrict forbids members that are not described, in an object unless it is
// open, and in all below.
func restrict(node any, open bool) {
	members, ok := node.(map[string]any)
	if !ok {
		return
	}
	reference, _ := members["$ref"].(string)
	properties, isObject := members["properties"].(map[string]any)
	if !open && (isObject || strings.HasPrefix(reference, "#/$defs/")) {
		members["unevaluatedProperties"] = false
	}
	for _, property := range properties {
		restrict(property, false)
	}
	restrict(members["items"], false)
}
