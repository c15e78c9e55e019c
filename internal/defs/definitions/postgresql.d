/*
 * PostgreSQL 9.4 to 18, configured with --enable-dtrace, as Debian's is.
 * https://www.postgresql.org/docs/current/dynamic-trace.html
 */
#define LocalTransactionId unsigned int
#define BlockNumber unsigned int
#define Oid unsigned int

enum LWLockMode { LW_EXCLUSIVE, LW_SHARED, LW_WAIT_UNTIL_FREE };
enum LOCKMODE {
	AccessShareLock = 1, RowShareLock, RowExclusiveLock, ShareUpdateExclusiveLock,
	ShareLock, ShareRowExclusiveLock, ExclusiveLock, AccessExclusiveLock
};
enum locktype {
	relation, extend, frozenid, page, tuple, transactionid, virtualxid, spectoken, object,
	userlock, advisory, applytransaction
};
enum resource_manager {
	XLOG, Transaction, Storage, CLOG, Database, Tablespace, MultiXact, RelMap, Standby, Heap2,
	Heap, Btree, Hash, Gin, Gist, Sequence, SPGist, BRIN, CommitTs, ReplicationOrigin, Generic,
	LogicalMessage
};
enum sort_kind { heap, index, datum, cluster };
enum ForkNumber { main, fsm, vm, init };

#pragma gousdt fires postgresql:query__start in the simple protocol only, as of psql: postgresql:statement is every statement
#pragma gousdt fires postgresql:query__done in the simple protocol only, as of psql: postgresql:statement is every statement

#pragma gousdt fires postgresql:*conn* never: connections have no probe
#pragma gousdt fires postgresql:*auth* never: connections have no probe
#pragma gousdt fires postgresql:*login* never: connections have no probe
#pragma gousdt fires postgresql:*idle* never: sessions wait for their client from one hit to the next, --latency postgresql:statement__status..postgresql:statement__status --where 'start.status == 0 && status != 0'
#pragma gousdt fires postgresql:*vacuum* never: VACUUM has no probe, and is a postgresql:transaction with its activity

/*
 * Of the connection that a server process serves. Without debugging information
 * the member is where versions 15, 17 and 18 of 64-bit machines have it.
 */
#pragma gousdt key postgresql:* user str(global.MyProcPort->user_name)
#pragma gousdt key postgresql:* database str(global.MyProcPort->database_name)
#pragma gousdt key postgresql:* client str(global.MyProcPort->remote_host)
#pragma gousdt key postgresql:* application str(global.application_name)
#pragma gousdt key postgresql:* activity str(global.MyBEEntry->st_activity_raw)
/* A slot of memory that all processes share, of another one while this one starts. */
#pragma gousdt own postgresql:* MyBEEntry->st_procpid MyProcPid
#pragma gousdt layout postgresql:* MyBEEntry->st_procpid 4 PostgreSQL 15.
#pragma gousdt layout postgresql:* MyBEEntry->st_procpid 4 PostgreSQL 17.
#pragma gousdt layout postgresql:* MyBEEntry->st_procpid 4 PostgreSQL 18.
#pragma gousdt layout postgresql:* MyBEEntry->st_activity_raw 248 PostgreSQL 15.
#pragma gousdt layout postgresql:* MyBEEntry->st_activity_raw 248 PostgreSQL 17.
#pragma gousdt layout postgresql:* MyBEEntry->st_activity_raw 248 PostgreSQL 18.
#pragma gousdt layout postgresql:* MyProcPort->remote_host 288 PostgreSQL 15.
#pragma gousdt layout postgresql:* MyProcPort->database_name 328 PostgreSQL 15.
#pragma gousdt layout postgresql:* MyProcPort->user_name 336 PostgreSQL 15.
#pragma gousdt layout postgresql:* MyProcPort->remote_host 288 PostgreSQL 17.
#pragma gousdt layout postgresql:* MyProcPort->database_name 320 PostgreSQL 17.
#pragma gousdt layout postgresql:* MyProcPort->user_name 328 PostgreSQL 17.
#pragma gousdt layout postgresql:* MyProcPort->remote_host 288 PostgreSQL 18.
#pragma gousdt layout postgresql:* MyProcPort->database_name 384 PostgreSQL 18.
#pragma gousdt layout postgresql:* MyProcPort->user_name 392 PostgreSQL 18.

provider postgresql {
	/*
	 * A statement, in the simple and in the extended protocol. An error leaves
	 * it by a long jump: the variable is NULL then where the transaction is
	 * aborted, but not where ROLLBACK aborts it. An error that aborts no
	 * transaction, but a part of it or nothing at all, is seen when the process
	 * says what it does next. It also says so before it parses or binds a
	 * statement of the extended protocol, which can fail there, and wait for a
	 * lock. Workers of a parallel statement say so too: it is not theirs.
	 */
	call statement(const char *query = global.debug_query_string) {
		query__start .. query__done;
		query__execute__start .. query__execute__done;
		failed transaction__abort if global.debug_query_string == 0;
		failed statement__status;
		attempt statement__status if global.debug_query_string != 0 && global.ParallelWorkerNumber == 0xffffffff;
		open GetCurrentStatementStartTimestamp if global.debug_query_string != 0 && global.ParallelWorkerNumber == 0xffffffff;
	};

	/* PREPARE TRANSACTION takes it from its session, without a probe. */
	call transaction(LocalTransactionId local_id) {
		transaction__start .. transaction__commit;
		failed transaction__abort;
		over statement__status if global.CurTransactionContext == 0;
		open GetCurrentTransactionStartTimestamp if global.CurTransactionContext != 0;
	};

	/*
	 * The plan decides in which order the sorts of a statement end, and no
	 * argument tells them apart. An error leaves them.
	 */
	call sort(enum sort_kind kind, bool is_unique, int keys, int work_memory_kb) {
		alone;
		sort__start .. sort__done;
		over transaction__abort;
		over transaction__commit;
	};

	/* Locks of one tranche are not told apart. */
	call lwlock(const char *tranche, LWLockMode mode) {
		alone;
		lwlock__acquire .. lwlock__release;
		lwlock__condacquire .. lwlock__release;
		lwlock__acquire__or__wait .. lwlock__release;
	};

	/* A deadlock, a timeout and a cancelled statement leave the wait. */
	call lock__wait(unsigned int field1, unsigned int field2, unsigned int field3,
		unsigned int field4, enum locktype object_type, LOCKMODE mode) {
		each;
		lock__wait__start .. lock__wait__done;
		failed transaction__abort;
	};

	/*
	 * PostgreSQL 17 starts several reads before the first is done. In 18 an I/O
	 * worker, another process, ends a read that is no hit.
	 */
	call buffer__read(ForkNumber fork, BlockNumber block, Oid tablespace, Oid database_oid,
		Oid relation) {
		alone;
		buffer__read__start .. buffer__read__done;
	};

	probe transaction__start(LocalTransactionId local_id);
	probe transaction__commit(LocalTransactionId local_id);
	probe transaction__abort(LocalTransactionId local_id);

	probe query__start(const char *query);
	probe query__done(const char *query);
	probe query__parse__start(const char *query);
	probe query__parse__done(const char *query);
	probe query__rewrite__start(const char *query);
	probe query__rewrite__done(const char *query);
	probe query__plan__start();
	probe query__plan__done();
	probe query__execute__start();
	probe query__execute__done();
	probe statement__status(const char *status);

	probe checkpoint__start(int flags);
	probe checkpoint__done(int buffers_written, int buffers_total, int segments_added,
		int segments_removed, int segments_recycled);
	probe clog__checkpoint__start(bool is_normal);
	probe clog__checkpoint__done(bool is_normal);
	probe subtrans__checkpoint__start(bool is_normal);
	probe subtrans__checkpoint__done(bool is_normal);
	probe multixact__checkpoint__start(bool is_normal);
	probe multixact__checkpoint__done(bool is_normal);
	probe twophase__checkpoint__start();
	probe twophase__checkpoint__done();

	probe buffer__checkpoint__start(int flags);
	probe buffer__checkpoint__sync__start();
	probe buffer__checkpoint__done();
	probe buffer__sync__start(int buffers_total, int buffers_dirty);
	probe buffer__sync__written(int buffer);
	probe buffer__sync__done(int buffers_total, int buffers_written, int buffers_expected);

	/* PostgreSQL 16 and newer */
	probe buffer__read__start(ForkNumber fork, BlockNumber block, Oid tablespace, Oid database_oid,
		Oid relation, int backend);
	probe buffer__read__done(ForkNumber fork, BlockNumber block, Oid tablespace, Oid database_oid,
		Oid relation, int backend, bool is_hit);
	probe buffer__extend__start(ForkNumber fork, Oid tablespace, Oid database_oid, Oid relation,
		int backend, unsigned int blocks);
	probe buffer__extend__done(ForkNumber fork, Oid tablespace, Oid database_oid, Oid relation,
		int backend, unsigned int blocks, BlockNumber first_block);
	/* before 16 */
	probe buffer__read__start(ForkNumber fork, BlockNumber block, Oid tablespace, Oid database_oid,
		Oid relation, int backend, bool is_extend);
	probe buffer__read__done(ForkNumber fork, BlockNumber block, Oid tablespace, Oid database_oid,
		Oid relation, int backend, bool is_extend, bool is_hit);
	probe buffer__flush__start(ForkNumber fork, BlockNumber block, Oid tablespace, Oid database_oid,
		Oid relation);
	probe buffer__flush__done(ForkNumber fork, BlockNumber block, Oid tablespace, Oid database_oid,
		Oid relation);
	probe buffer__write__dirty__start(ForkNumber fork, BlockNumber block, Oid tablespace,
		Oid database_oid, Oid relation);
	probe buffer__write__dirty__done(ForkNumber fork, BlockNumber block, Oid tablespace,
		Oid database_oid, Oid relation);

	probe smgr__md__read__start(ForkNumber fork, BlockNumber block, Oid tablespace, Oid database_oid,
		Oid relation, int backend);
	probe smgr__md__read__done(ForkNumber fork, BlockNumber block, Oid tablespace, Oid database_oid,
		Oid relation, int backend, int bytes, int bytes_requested);
	probe smgr__md__write__start(ForkNumber fork, BlockNumber block, Oid tablespace, Oid database_oid,
		Oid relation, int backend);
	probe smgr__md__write__done(ForkNumber fork, BlockNumber block, Oid tablespace, Oid database_oid,
		Oid relation, int backend, int bytes, int bytes_requested);

	probe wal__buffer__write__dirty__start();
	probe wal__buffer__write__dirty__done();
	probe wal__insert(enum resource_manager resource_manager, unsigned char info);
	probe wal__switch();

	probe sort__start(enum sort_kind kind, bool is_unique, int keys, int work_memory_kb,
		bool is_random_access, int parallel);
	probe sort__start(enum sort_kind kind, bool is_unique, int keys, int work_memory_kb,
		bool is_random_access);
	probe sort__done(bool is_external, long used);

	probe lwlock__acquire(const char *tranche, LWLockMode mode);
	probe lwlock__release(const char *tranche);
	probe lwlock__wait__start(const char *tranche, LWLockMode mode);
	probe lwlock__wait__done(const char *tranche, LWLockMode mode);
	probe lwlock__condacquire(const char *tranche, LWLockMode mode);
	probe lwlock__condacquire__fail(const char *tranche, LWLockMode mode);
	probe lwlock__acquire__or__wait(const char *tranche, LWLockMode mode);
	probe lwlock__acquire__or__wait__fail(const char *tranche, LWLockMode mode);

	probe lock__wait__start(unsigned int field1, unsigned int field2, unsigned int field3,
		unsigned int field4, enum locktype object_type, LOCKMODE mode);
	probe lock__wait__done(unsigned int field1, unsigned int field2, unsigned int field3,
		unsigned int field4, enum locktype object_type, LOCKMODE mode);
	probe deadlock__found();
};

#pragma gousdt note postgresql:lock__wait__* object_type named as in pg_locks from PostgreSQL 13 on; before, page and what follows it are one less
#pragma gousdt note postgresql:*__checkpoint__* is_normal false for the checkpoint of a shutdown
#pragma gousdt note postgresql:sort__done used blocks of 8 kB on disk if is_external, else kB of memory; the leader of a parallel CREATE INDEX has those of its workers again
#pragma gousdt note postgresql:buffer__extend__done blocks that were added, perhaps fewer than asked for

#pragma gousdt match postgresql:lwlock tranche

#pragma gousdt time postgresql:statement a statement of the extended protocol is executed, without its parsing, planning and commit, and the waits for locks in these; a message of the simple protocol is handled, with all of these
#pragma gousdt time postgresql:transaction a transaction runs, with the time that it waits for its client; also that of a parallel worker
#pragma gousdt time postgresql:query all statements of a text are parsed, planned and executed, in the simple protocol
#pragma gousdt time postgresql:query__parse a text is parsed
#pragma gousdt time postgresql:query__rewrite rules and views are applied to a statement
#pragma gousdt time postgresql:query__plan a statement is planned
#pragma gousdt time postgresql:query__execute a statement is executed; one that writes is there twice, inside itself
#pragma gousdt time postgresql:checkpoint a checkpoint runs, with the pauses that spread its writes
#pragma gousdt time postgresql:buffer__sync a checkpoint writes buffers, with its pauses
#pragma gousdt time postgresql:*__checkpoint this part of a checkpoint is written
#pragma gousdt time postgresql:buffer__checkpoint a checkpoint writes and syncs buffers, with its pauses
#pragma gousdt time postgresql:buffer__read a block is looked for, and read unless is_hit; in PostgreSQL 17 several at once, each with the time of all (--match block), and in 18 not known if an I/O worker reads
#pragma gousdt time postgresql:buffer__flush a changed buffer is handed to the kernel
#pragma gousdt time postgresql:buffer__write__dirty a server process writes a changed buffer to have its place
#pragma gousdt time postgresql:smgr__md__read a block, in PostgreSQL 17 up to 16, is read from its file, which may be in the kernel's cache (not in PostgreSQL 18)
#pragma gousdt time postgresql:smgr__md__write a block is written to the kernel's cache
#pragma gousdt time postgresql:wal__buffer__write__dirty a server process writes a WAL buffer because none is free
#pragma gousdt time postgresql:sort a sort has memory: it takes in rows, sorts them, and gives them out
#pragma gousdt time postgresql:lwlock a lightweight lock is held
#pragma gousdt time postgresql:lwlock__wait a server process waits for a lightweight lock, once or more until it has it
#pragma gousdt time postgresql:lock__wait a server process waits for a heavyweight lock, also where it does not get it

#pragma gousdt when postgresql:transaction__start a transaction starts
#pragma gousdt when postgresql:transaction__commit a transaction commits
#pragma gousdt when postgresql:transaction__abort a transaction is rolled back, by an error or by ROLLBACK
#pragma gousdt when postgresql:query__start a text of statements has arrived
#pragma gousdt when postgresql:query__done all statements of a text are done
#pragma gousdt when postgresql:query__parse__start the parsing of a text starts
#pragma gousdt when postgresql:query__parse__done the parsing of a text is done
#pragma gousdt when postgresql:query__rewrite__start rules and views start to be applied to a statement
#pragma gousdt when postgresql:query__rewrite__done rules and views have been applied to a statement
#pragma gousdt when postgresql:query__plan__start the planning of a statement starts
#pragma gousdt when postgresql:query__plan__done the planning of a statement is done
#pragma gousdt when postgresql:query__execute__start the execution of a statement starts
#pragma gousdt when postgresql:query__execute__done the execution of a statement is done; twice for one that writes, so that gaps after it count twice
#pragma gousdt when postgresql:statement__status a server process sets what pg_stat_activity shows of it
#pragma gousdt when postgresql:checkpoint__start a checkpoint starts
#pragma gousdt when postgresql:checkpoint__done a checkpoint is done
#pragma gousdt when postgresql:clog__checkpoint__start the part of a checkpoint for the states of transactions starts
#pragma gousdt when postgresql:clog__checkpoint__done the part of a checkpoint for the states of transactions is done
#pragma gousdt when postgresql:subtrans__checkpoint__start the part of a checkpoint for subtransactions starts
#pragma gousdt when postgresql:subtrans__checkpoint__done the part of a checkpoint for subtransactions is done
#pragma gousdt when postgresql:multixact__checkpoint__start the part of a checkpoint for rows that several transactions lock starts
#pragma gousdt when postgresql:multixact__checkpoint__done the part of a checkpoint for rows that several transactions lock is done
#pragma gousdt when postgresql:twophase__checkpoint__start the part of a checkpoint for prepared transactions starts
#pragma gousdt when postgresql:twophase__checkpoint__done the part of a checkpoint for prepared transactions is done
#pragma gousdt when postgresql:buffer__checkpoint__start a checkpoint starts to write buffers
#pragma gousdt when postgresql:buffer__checkpoint__sync__start a checkpoint has written its buffers, and starts to sync the files
#pragma gousdt when postgresql:buffer__checkpoint__done a checkpoint has written and synced its buffers
#pragma gousdt when postgresql:buffer__sync__start a checkpoint starts to write the buffers that have changed
#pragma gousdt when postgresql:buffer__sync__written a checkpoint has written a buffer
#pragma gousdt when postgresql:buffer__sync__done a checkpoint has written all buffers that have changed
#pragma gousdt when postgresql:buffer__read__start a block is asked for, which may be in shared buffers
#pragma gousdt when postgresql:buffer__read__done a block that was asked for is there
#pragma gousdt when postgresql:buffer__extend__start blocks start to be added to a relation
#pragma gousdt when postgresql:buffer__extend__done blocks were added to a relation
#pragma gousdt when postgresql:buffer__flush__start a changed buffer starts to be written
#pragma gousdt when postgresql:buffer__flush__done a changed buffer was handed to the kernel
#pragma gousdt when postgresql:buffer__write__dirty__start a server process starts to write a changed buffer to have its place
#pragma gousdt when postgresql:buffer__write__dirty__done a server process has written a changed buffer to have its place
#pragma gousdt when postgresql:smgr__md__read__start a block starts to be read from its file
#pragma gousdt when postgresql:smgr__md__read__done a block was read from its file
#pragma gousdt when postgresql:smgr__md__write__start a block starts to be written to its file
#pragma gousdt when postgresql:smgr__md__write__done a block was written to its file
#pragma gousdt when postgresql:wal__buffer__write__dirty__start a server process starts to write a WAL buffer because none is free
#pragma gousdt when postgresql:wal__buffer__write__dirty__done a server process has written a WAL buffer because none was free
#pragma gousdt when postgresql:wal__insert a record is added to the WAL
#pragma gousdt when postgresql:wal__switch a switch to the next WAL file is asked for
#pragma gousdt when postgresql:sort__start a sort starts
#pragma gousdt when postgresql:sort__done a sort is done, in memory or, if is_external, with files
#pragma gousdt when postgresql:lwlock__acquire a lightweight lock is taken
#pragma gousdt when postgresql:lwlock__release a lightweight lock is released
#pragma gousdt when postgresql:lwlock__wait__start a server process starts to wait for a lightweight lock
#pragma gousdt when postgresql:lwlock__wait__done a server process has waited for a lightweight lock
#pragma gousdt when postgresql:lwlock__condacquire a lightweight lock is taken that was free
#pragma gousdt when postgresql:lwlock__condacquire__fail a lightweight lock is not free, and is not waited for
#pragma gousdt when postgresql:lwlock__acquire__or__wait a lightweight lock is taken at once
#pragma gousdt when postgresql:lwlock__acquire__or__wait__fail a lightweight lock is not free, and was waited for without being taken
#pragma gousdt when postgresql:lock__wait__start a server process starts to wait for a heavyweight lock, as of a row or table
#pragma gousdt when postgresql:lock__wait__done a server process has waited for a heavyweight lock
#pragma gousdt when postgresql:deadlock__found a deadlock is found
