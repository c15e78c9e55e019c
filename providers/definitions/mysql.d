/*
 * MySQL 5.5 to 5.7, built with ENABLE_DTRACE.
 * https://dev.mysql.com/doc/refman/5.7/en/dba-dtrace-mysqld-ref.html
 */
provider mysql {
	probe connection__start(unsigned long connection, char *user, char *host);
	probe connection__done(int status, unsigned long connection);
	probe command__start(unsigned long connection, int command, char *user, char *host);
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
