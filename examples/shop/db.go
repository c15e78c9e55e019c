// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"database/sql/driver"
	"io"
	"time"
)

// tracedDB lets any driver's queries fire probes: sql.OpenDB(tracedDB{...}).
type tracedDB struct{ driver.Connector }

func (d tracedDB) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := d.Connector.Connect(ctx)
	dbConnect(err != nil)
	return tracedConn{c}, err
}

type tracedConn struct{ driver.Conn }

func (c tracedConn) QueryContext(
	ctx context.Context, query string, args []driver.NamedValue,
) (rows driver.Rows, err error) {
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	queryStart(query)
	defer func() { queryDone(0, err != nil) }() // the rows come later
	return q.QueryContext(ctx, query, args)
}

func (c tracedConn) ExecContext(
	ctx context.Context, query string, args []driver.NamedValue,
) (result driver.Result, err error) {
	e, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	queryStart(query)
	defer func() {
		rows := int64(0)
		if err == nil {
			rows, _ = result.RowsAffected()
		}
		queryDone(int(rows), err != nil)
	}()
	return e.ExecContext(ctx, query, args)
}

// memory is a driver whose store has a price for most items, and takes its
// time.
type memory struct{}

func (memory) Connect(context.Context) (driver.Conn, error) { return memory{}, nil }
func (memory) Driver() driver.Driver                        { return nil }
func (memory) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (memory) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }
func (memory) Close() error                                 { return nil }

func (memory) find(args []driver.NamedValue) int64 {
	id, _ := args[0].Value.(int64)
	time.Sleep(time.Duration(id%7) * 100 * time.Microsecond)
	return id
}

func (m memory) QueryContext(_ context.Context, _ string, args []driver.NamedValue) (driver.Rows, error) {
	id := m.find(args)
	return &price{id: id, isDone: id%13 == 0}, nil
}

func (m memory) ExecContext(_ context.Context, _ string, args []driver.NamedValue) (driver.Result, error) {
	m.find(args)
	return driver.RowsAffected(1), nil
}

// price is one row, or none.
type price struct {
	id     int64
	isDone bool
}

func (*price) Columns() []string { return []string{"price"} }
func (*price) Close() error      { return nil }

func (p *price) Next(row []driver.Value) error {
	if p.isDone {
		return io.EOF
	}
	p.isDone, row[0] = true, float64(p.id)*1.5
	return nil
}
