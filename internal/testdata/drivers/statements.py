# SPDX-License-Identifier: BSD-2-Clause
"""Passes statements to PostgreSQL: statements.py DRIVER PORT. README.md says which."""

import sys

driver = __import__(sys.argv[1])
database = f"host=127.0.0.1 port={sys.argv[2]} user=gousdt dbname=postgres"
connection = driver.connect(database)
connection.autocommit = True
cursor = connection.cursor()
for i in range(20):
    cursor.execute("SELECT note FROM t WHERE a = %s", (i,))
    cursor.fetchall()
for i in range(10):
    cursor.execute("UPDATE t SET note = %s WHERE a = %s", (f"n{i}", i))
connection.autocommit = False
for i in range(5):
    cursor.execute("INSERT INTO t VALUES (%s, %s)", (100 + i, "new"))
connection.commit()
connection.autocommit = True
for i in range(10):
    try:
        cursor.execute("SELECT 1/0")
    except driver.Error:
        pass
connection.close()
