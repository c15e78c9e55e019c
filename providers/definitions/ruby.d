/*
 * Ruby 2.0 and newer, configured with --enable-dtrace, as Debian's is, in
 * libruby. https://docs.ruby-lang.org/en/master/contributing/dtrace_probes_rdoc.html
 */
provider ruby {
	probe method__entry(const char *class, const char *method, const char *filename, int line);
	probe method__return(const char *class, const char *method, const char *filename, int line);
	probe cmethod__entry(const char *class, const char *method, const char *filename, int line);
	probe cmethod__return(const char *class, const char *method, const char *filename, int line);
	probe require__entry(const char *required, const char *filename, int line);
	probe require__return(const char *required, const char *filename, int line);
	probe find__require__entry(const char *required, const char *filename, int line);
	probe find__require__return(const char *required, const char *filename, int line);
	probe load__entry(const char *loaded, const char *filename, int line);
	probe load__return(const char *loaded, const char *filename, int line);
	probe raise(const char *class, const char *filename, int line);
	probe object__create(const char *class, const char *filename, int line);
	probe array__create(long size, const char *filename, int line);
	probe hash__create(long size, const char *filename, int line);
	probe string__create(long size, const char *filename, int line);
	probe symbol__create(const char *symbol, const char *filename, int line);
	probe parse__begin(const char *filename, int line);
	probe parse__end(const char *filename, int line);
	probe method__cache__clear(const char *class, const char *filename, int line);
	probe gc__mark__begin();
	probe gc__mark__end();
	probe gc__sweep__begin();
	probe gc__sweep__end();
};

#pragma gousdt fires ruby:*method__entry only while the program has an enabled TracePoint for calls
#pragma gousdt fires ruby:*method__return only while the program has an enabled TracePoint for calls
