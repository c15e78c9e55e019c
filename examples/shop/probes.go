// SPDX-License-Identifier: BSD-2-Clause

package main

import "time"

//go:generate go tool sdt
//sdt:provider shop

// A request, by its route: "GET /items/{id}".

//go:noescape
func requestStart(route, method, path string)

//go:noescape
func requestDone(route string, status int, took time.Duration)

//go:noescape
func requestPanic(route string)

// A connection to the store, and a statement that it runs.
func dbConnect(failed bool)

//go:noescape
func queryStart(query string)
func queryDone(rows int, failed bool)

// The cache before it.
func cacheHit(id int)
func cacheMiss(id int)

// A job is queued in one goroutine and done in another.
func jobQueued(id uint64, length int)
func jobStart(id uint64)
func jobDone(id uint64, price float64)
func jobFailed(id uint64)
