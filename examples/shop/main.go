// SPDX-License-Identifier: BSD-2-Clause

// Shop is a web server with probes of its own: its requests, the queries of its
// store, its cache, and the jobs of its workers. With -clients it is its own
// load; with -requests it ends after so much of it, and prints what it measured
// itself.
package main

import (
	"database/sql"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"math/bits"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// traced lets the requests of a route fire probes. This is all that a web
// server needs for its latency by route.
func traced(route string, handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer := &recorder{ResponseWriter: w, status: http.StatusOK}
		start := time.Now()
		requestStart(route, r.Method, r.URL.Path)
		defer func() {
			if p := recover(); p != nil {
				requestPanic(route)
				answer.WriteHeader(http.StatusInternalServerError)
			}
			took := time.Since(start)
			requestDone(route, answer.status, took)
			measured.add(route, took)
		}()
		handle(answer, r)
	}
}

type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// histograms are what the server knows of its latency without a tracer.
type histograms struct {
	sync.Mutex
	byRoute map[string]map[int]int // by the power of two that it is at most
}

var measured = histograms{byRoute: make(map[string]map[int]int)}

func (h *histograms) add(route string, took time.Duration) {
	h.Lock()
	defer h.Unlock()
	if h.byRoute[route] == nil {
		h.byRoute[route] = make(map[int]int)
	}
	h.byRoute[route][bits.Len64(uint64(took)-1)]++
}

func (h *histograms) print() {
	h.Lock()
	defer h.Unlock()
	for _, route := range slices.Sorted(maps.Keys(h.byRoute)) {
		for _, bit := range slices.Sorted(maps.Keys(h.byRoute[route])) {
			fmt.Printf("%s: at most %d ns: %d\n", route, 1<<bit, h.byRoute[route][bit])
		}
	}
}

// shop is the application.
type shop struct {
	store *sql.DB
	cache sync.Map
	jobs  chan uint64
	last  atomic.Uint64
}

func (s *shop) item(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil {
		panic(err)
	}
	price, ok := s.cache.Load(id)
	if ok {
		cacheHit(id)
	} else {
		cacheMiss(id)
		err = s.store.QueryRowContext(r.Context(), "SELECT price FROM items WHERE id = ?", id).Scan(&price)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		s.cache.Store(id, price)
	}
	fmt.Fprintln(w, price)
}

func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	id := s.last.Add(1)
	_, err := s.store.ExecContext(r.Context(), "INSERT INTO orders (id) VALUES (?)", int64(id))
	if err != nil {
		panic(err)
	}
	if jobQueuedEnabled() { // the length is for tracers alone
		jobQueued(id, len(s.jobs))
	}
	s.jobs <- id
	w.WriteHeader(http.StatusAccepted)
}

func (s *shop) work() {
	for id := range s.jobs {
		jobStart(id)
		var price float64
		if err := s.store.QueryRow("UPDATE orders SET done = true WHERE id = ? RETURNING price",
			int64(id)).Scan(&price); err != nil {
			jobFailed(id)
			continue
		}
		jobDone(id, price)
	}
}

// load sends requests, as many as there is room for in a counter.
func load(address string, left *atomic.Int64) {
	for n := left.Add(-1); n >= 0; n = left.Add(-1) {
		path, method := fmt.Sprintf("/items/%d", n%1000), http.MethodGet
		switch {
		case n%10 == 0:
			path, method = "/orders", http.MethodPost
		case n%501 == 0:
			path = "/items/pear"
		}
		request, err := http.NewRequest(method, "http://"+address+path, nil)
		if err != nil {
			log.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			log.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
}

func main() {
	address := flag.String("listen", "127.0.0.1:0", "`address` to listen at")
	clients := flag.Int("clients", 0, "number of clients of its own")
	requests := flag.Int64("requests", 1<<62, "number of their requests")
	flag.Parse()
	s := &shop{store: sql.OpenDB(tracedDB{memory{}}), jobs: make(chan uint64, 100)}
	s.store.SetMaxIdleConns(16)
	for range 4 {
		go s.work()
	}
	mux := http.NewServeMux()
	for route, handle := range map[string]http.HandlerFunc{
		"GET /items/{id}": s.item, "POST /orders": s.order,
	} {
		mux.HandleFunc(route, traced(route, handle))
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	if *clients == 0 {
		log.Fatal(server.Serve(listener))
	}
	go func() { log.Fatal(server.Serve(listener)) }()
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = *clients
	var left atomic.Int64
	left.Store(*requests)
	var done sync.WaitGroup
	for range *clients {
		done.Go(func() { load(listener.Addr().String(), &left) })
	}
	done.Wait()
	measured.print()
}
