\set trace random(1000000000000000, 9000000000000000)
\set id random(1, 100000)
SELECT abalance FROM pgbench_accounts WHERE aid = :id /*traceparent='00-0000000000000000:trace-:trace-01'*/;
UPDATE pgbench_branches SET bbalance = bbalance + 1 /*traceparent='00-0000000000000000:trace-:trace-01'*/;
SELECT pg_sleep(random() / 100) /*traceparent='00-0000000000000000:trace-:trace-01'*/;
