// SPDX-License-Identifier: BSD-2-Clause

package providers_test

import (
	"fmt"
	"log"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/providers"
)

// What is known of a probe of PostgreSQL that has two arguments.
func ExampleBuiltin() {
	known := providers.Builtin()
	probe, ok := known.Probe("postgresql", "lwlock__acquire", 2)
	if !ok {
		fmt.Println("it is not known")
		return
	}
	fmt.Println(probe.Arguments[0].Type, probe.Arguments[0].Name)
	fmt.Println(probe.Arguments[0].IsText, probe.Arguments[1].ValueName(1))
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
	probe, _ := known.Probe("shop", "sold", 2)
	fmt.Println(probe.Provider, probe.Name, probe.Arguments[0].Name, probe.Arguments[1].Name)
	// Output: shop sold fruit number
}

// The pairs of probes of a file, between which a time can be measured.
func ExampleDefinitions_Pairs() {
	listing := &elfnote.Listing{Probes: []elfnote.Probe{
		{Provider: "python", Name: "gc__start"},
		{Provider: "python", Name: "gc__done"},
		{Provider: "python", Name: "function__entry"},
		{Provider: "python", Name: "function__return"},
		{Provider: "python", Name: "line"},
	}}
	for _, pair := range providers.Builtin().Pairs(listing, providers.MustParsePairPattern("*")) {
		fmt.Println(pair, "is from", pair.Start.Name, "to", pair.Done.Name)
	}
	// Output:
	// python:gc is from gc__start to gc__done
	// python:function is from function__entry to function__return
}
