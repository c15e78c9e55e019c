// SPDX-License-Identifier: BSD-2-Clause

package providers_test

import (
	"fmt"
	"log"

	"github.com/gousdt/gousdt/providers"
)

// What is known of a probe of PostgreSQL that has two arguments.
func ExampleBuiltin() {
	known := providers.Builtin()
	arguments, ok := known.Arguments("postgresql", "lwlock__acquire", 2)
	if !ok {
		fmt.Println("it is not known")
		return
	}
	fmt.Println(arguments[0].Type, arguments[0].Name)
	fmt.Println(arguments[0].IsText, arguments[1].Values[1])
	// Output:
	// const char * tranche
	// true LW_SHARED
}

// The definitions of an application of one's own beside those that are known.
func ExampleDefinitions_Parse() {
	known := providers.Builtin()
	err := known.Parse("shop.d", []byte(`
		provider shop {
			probe sold(const char *fruit, int number);
		};`))
	if err != nil {
		log.Fatal(err)
	}
	arguments, _ := known.Arguments("shop", "sold", 2)
	fmt.Println(arguments[0].Name, arguments[1].Name)
	// Output: fruit number
}
