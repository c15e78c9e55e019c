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

#pragma gousdt time ruby:method a method of Ruby code runs
#pragma gousdt time ruby:cmethod a method of C code runs
#pragma gousdt time ruby:require a feature is required, also one that is loaded already
#pragma gousdt time ruby:find__require the file of a feature is searched
#pragma gousdt time ruby:load a file is loaded
#pragma gousdt time ruby:parse a file is parsed
#pragma gousdt time ruby:gc__mark a collection marks, or a step of it does
#pragma gousdt time ruby:gc__sweep a collection sweeps, or a step of it does

#pragma gousdt fires ruby:*method__entry only while the program has an enabled TracePoint for it: TracePoint.new(:call, :return) {}.enable
#pragma gousdt fires ruby:*method__return only while the program has an enabled TracePoint for it: TracePoint.new(:call, :return) {}.enable

#pragma gousdt when ruby:method__entry a method in Ruby begins
#pragma gousdt when ruby:method__return a method in Ruby ends
#pragma gousdt when ruby:cmethod__entry a method in C begins
#pragma gousdt when ruby:cmethod__return a method in C ends
#pragma gousdt when ruby:require__entry require begins
#pragma gousdt when ruby:require__return require ends
#pragma gousdt when ruby:find__require__entry require starts to search for a file
#pragma gousdt when ruby:find__require__return require has searched for a file
#pragma gousdt when ruby:load__entry load begins
#pragma gousdt when ruby:load__return load ends
#pragma gousdt when ruby:raise an exception is raised
#pragma gousdt when ruby:object__create an object is made
#pragma gousdt when ruby:array__create an array is made
#pragma gousdt when ruby:hash__create a hash is made
#pragma gousdt when ruby:string__create a string is made
#pragma gousdt when ruby:symbol__create a symbol is made
#pragma gousdt when ruby:parse__begin the parsing of a file starts
#pragma gousdt when ruby:parse__end the parsing of a file is done
#pragma gousdt when ruby:method__cache__clear a cache of methods is cleared
#pragma gousdt when ruby:gc__mark__begin a garbage collection starts to mark objects
#pragma gousdt when ruby:gc__mark__end a garbage collection has marked objects
#pragma gousdt when ruby:gc__sweep__begin a garbage collection starts to free objects
#pragma gousdt when ruby:gc__sweep__end a garbage collection has freed objects
