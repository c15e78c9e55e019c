// SPDX-License-Identifier: BSD-2-Clause

// The command passes statements to PostgreSQL: pgx PORT. README.md says which.
package main

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
)

func main() {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx,
		"host=127.0.0.1 user=gousdt dbname=postgres sslmode=disable port="+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close(ctx)
	run := func(times, first int, statement string) {
		for i := first; i < first+times; i++ {
			if _, err := connection.Exec(ctx, statement, i); err != nil {
				log.Fatal(err)
			}
		}
	}
	run(20, 0, "SELECT note FROM t WHERE a = $1")
	run(10, 0, "UPDATE t SET note = 'x' WHERE a = $1")
	transaction, err := connection.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	run(5, 100, "INSERT INTO t VALUES ($1, 'new')")
	if err := transaction.Commit(ctx); err != nil {
		log.Fatal(err)
	}
	for range 10 {
		if _, err := connection.Exec(ctx, "SELECT 1/0"); err == nil {
			log.Fatal("there is no error")
		}
	}
}
