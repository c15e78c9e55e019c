// SPDX-License-Identifier: BSD-2-Clause

//go:build ignore

// What the drivers have in common, see drivers.go. The script others builds
// them.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
)

type reply struct {
	Sites []site `json:"sites"`
	Error string `json:"error,omitempty"`
	Panic string `json:"panic,omitempty"`
}

type site struct {
	Provider  string     `json:"provider"`
	Name      string     `json:"name"`
	Offset    uint64     `json:"offset"`
	Semaphore uint64     `json:"semaphore"`
	Args      []argument `json:"args,omitempty"`
}

type argument struct {
	Kind            string `json:"kind"`
	Size            int    `json:"size"`
	Signed          bool   `json:"signed,omitempty"`
	Value           uint64 `json:"value"`
	Register, Index int16
}

func main() {
	if len(os.Args) > 1 {
		info, _ := debug.ReadBuildInfo()
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				fmt.Println(dependency.Version)
			}
		}
		return
	}
	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		out.Encode(answer(in.Text()))
	}
}

func answer(path string) (r reply) {
	defer func() {
		if p := recover(); p != nil {
			r = reply{Panic: fmt.Sprint(p)}
		}
	}()
	sites, err := list(path)
	if err != nil {
		return reply{Error: err.Error()}
	}
	return reply{Sites: sites}
}
