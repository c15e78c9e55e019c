/*
 * MySQL 5.5 to 5.7, built with ENABLE_DTRACE.
 * https://dev.mysql.com/doc/refman/5.7/en/dba-dtrace-mysqld-ref.html
 */
enum command {
	COM_SLEEP, COM_QUIT, COM_INIT_DB, COM_QUERY, COM_FIELD_LIST, COM_CREATE_DB, COM_DROP_DB,
	COM_REFRESH, COM_SHUTDOWN, COM_STATISTICS, COM_PROCESS_INFO, COM_CONNECT, COM_PROCESS_KILL,
	COM_DEBUG, COM_PING, COM_TIME, COM_DELAYED_INSERT, COM_CHANGE_USER, COM_BINLOG_DUMP,
	COM_TABLE_DUMP, COM_CONNECT_OUT, COM_REGISTER_SLAVE, COM_STMT_PREPARE, COM_STMT_EXECUTE,
	COM_STMT_SEND_LONG_DATA, COM_STMT_CLOSE, COM_STMT_RESET, COM_SET_OPTION, COM_STMT_FETCH
};

provider mysql {
	probe connection__start(unsigned long connection, char *user, char *host);
	probe connection__done(int status, unsigned long connection);
	probe command__start(unsigned long connection, enum command command, char *user, char *host);
	probe command__done(int status);
	probe query__start(char *query, unsigned long connection, char *database, char *user,
		char *host);
	probe query__done(int status);
	probe query__parse__start(char *query);
	probe query__parse__done(int status);
	probe query__cache__hit(char *query, unsigned long rows);
	probe query__cache__miss(char *query);
	probe query__exec__start(char *query, unsigned long connection, char *database, char *user,
		char *host, int kind);
	probe query__exec__done(int status);
	probe insert__row__start(char *database, char *table);
	probe insert__row__done(int status);
	probe update__row__start(char *database, char *table);
	probe update__row__done(int status);
	probe delete__row__start(char *database, char *table);
	probe delete__row__done(int status);
	probe read__row__start(char *database, char *table, int is_scan);
	probe read__row__done(int status);
	probe index__read__row__start(char *database, char *table);
	probe index__read__row__done(int status);
	probe filesort__start(char *database, char *table);
	probe filesort__done(int status, unsigned long rows);
	probe select__start(char *query);
	probe select__done(int status, unsigned long rows);
	probe insert__start(char *query);
	probe insert__done(int status, unsigned long rows);
	probe insert__select__start(char *query);
	probe insert__select__done(int status, unsigned long rows);
	probe update__start(char *query);
	probe update__done(int status, unsigned long rows_matched, unsigned long rows_changed);
	probe multi__update__start(char *query);
	probe multi__update__done(int status, unsigned long rows_matched, unsigned long rows_changed);
	probe delete__start(char *query);
	probe delete__done(int status, unsigned long rows);
	probe multi__delete__start(char *query);
	probe multi__delete__done(int status, unsigned long rows);
	probe net__read__start();
	probe net__read__done(int status, unsigned long bytes);
	probe net__write__start(unsigned long bytes);
	probe net__write__done(int status);
};

#pragma gousdt match mysql:connection connection
#pragma gousdt time mysql:connection a client is connected
#pragma gousdt time mysql:command a command of a client is worked on
#pragma gousdt time mysql:query a statement is parsed and executed
#pragma gousdt time mysql:query__parse a statement is parsed
#pragma gousdt time mysql:query__exec a statement is executed
#pragma gousdt time mysql:*__row a storage engine works on a row
#pragma gousdt time mysql:filesort rows are sorted
#pragma gousdt time mysql:net__read the server waits for what a client sends
#pragma gousdt time mysql:net__write the server sends to a client

#pragma gousdt when mysql:connection__start a client has connected
#pragma gousdt when mysql:connection__done a client has disconnected
#pragma gousdt when mysql:command__start a command of a client starts
#pragma gousdt when mysql:command__done a command of a client is done
#pragma gousdt when mysql:query__start a statement starts
#pragma gousdt when mysql:query__done a statement is done
#pragma gousdt when mysql:query__parse__start the parsing of a statement starts
#pragma gousdt when mysql:query__parse__done the parsing of a statement is done
#pragma gousdt when mysql:query__cache__hit a result is in the query cache
#pragma gousdt when mysql:query__cache__miss a result is not in the query cache
#pragma gousdt when mysql:query__exec__start the execution of a statement starts
#pragma gousdt when mysql:query__exec__done the execution of a statement is done
#pragma gousdt when mysql:insert__row__start a storage engine starts to insert a row
#pragma gousdt when mysql:insert__row__done a storage engine has inserted a row
#pragma gousdt when mysql:update__row__start a storage engine starts to change a row
#pragma gousdt when mysql:update__row__done a storage engine has changed a row
#pragma gousdt when mysql:delete__row__start a storage engine starts to delete a row
#pragma gousdt when mysql:delete__row__done a storage engine has deleted a row
#pragma gousdt when mysql:read__row__start a storage engine starts to read a row
#pragma gousdt when mysql:read__row__done a storage engine has read a row
#pragma gousdt when mysql:index__read__row__start a storage engine starts to read a row by an index
#pragma gousdt when mysql:index__read__row__done a storage engine has read a row by an index
#pragma gousdt when mysql:filesort__start a sort of rows starts
#pragma gousdt when mysql:filesort__done a sort of rows is done
#pragma gousdt when mysql:select__start a SELECT starts
#pragma gousdt when mysql:select__done a SELECT is done
#pragma gousdt when mysql:insert__start an INSERT starts
#pragma gousdt when mysql:insert__done an INSERT is done
#pragma gousdt when mysql:insert__select__start an INSERT of rows that are selected starts
#pragma gousdt when mysql:insert__select__done an INSERT of rows that are selected is done
#pragma gousdt when mysql:update__start an UPDATE starts
#pragma gousdt when mysql:update__done an UPDATE is done
#pragma gousdt when mysql:multi__update__start an UPDATE of several tables starts
#pragma gousdt when mysql:multi__update__done an UPDATE of several tables is done
#pragma gousdt when mysql:delete__start a DELETE starts
#pragma gousdt when mysql:delete__done a DELETE is done
#pragma gousdt when mysql:multi__delete__start a DELETE from several tables starts
#pragma gousdt when mysql:multi__delete__done a DELETE from several tables is done
#pragma gousdt when mysql:net__read__start the server starts to wait for what a client sends
#pragma gousdt when mysql:net__read__done the server has read what a client has sent
#pragma gousdt when mysql:net__write__start the server starts to send to a client
#pragma gousdt when mysql:net__write__done the server has sent to a client
