// SPDX-License-Identifier: BSD-2-Clause

package main

//go:generate go tool sdt
//sdt:provider bench

//go:noescape
func fire(path string, id int)
