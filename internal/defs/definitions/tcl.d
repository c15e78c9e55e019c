/*
 * Tcl, configured with --enable-dtrace: Fedora's, in libtcl8.6.so.
 * https://wiki.tcl-lang.org/page/DTrace
 */
enum tcl_code { TCL_OK, TCL_ERROR, TCL_RETURN, TCL_BREAK, TCL_CONTINUE };

provider tcl {
	probe proc__entry(char *name, int words, void *objects);
	probe proc__args(char *name, char *word1, char *word2, char *word3, char *word4, char *word5,
		char *word6, char *word7, char *word8, char *word9);
	probe proc__return(char *name, tcl_code code);
	probe proc__result(char *name, tcl_code code, char *result, void *object);
	probe cmd__entry(char *name, int words, void *objects);
	probe cmd__return(char *name, tcl_code code);
	probe cmd__result(char *name, tcl_code code, char *result, void *object);
	probe inst__start(char *name, int depth, void *objects);
	probe inst__done(char *name, int depth, void *objects);
	probe obj__create(void *object);
	probe obj__free(void *object);

	/* Tcl 8.6 passes proc__entry twice for each procedure. */
	call proc(char *name) {
		each;
		proc__args .. proc__return;
	};
};

#pragma gousdt apart tcl:proc__entry
#pragma gousdt fires tcl:proc__entry in Tcl 8.6 twice for each procedure
#pragma gousdt time tcl:proc a procedure runs; of coroutines that take turns, the last that began is taken to end first

#pragma gousdt when tcl:proc__entry a procedure begins
#pragma gousdt when tcl:proc__args a procedure begins, with its words
#pragma gousdt when tcl:proc__return a procedure ends
#pragma gousdt when tcl:proc__result a procedure ends, with its result
#pragma gousdt when tcl:cmd__entry a command begins
#pragma gousdt when tcl:cmd__return a command ends
#pragma gousdt when tcl:cmd__result a command ends, with its result
#pragma gousdt when tcl:inst__start an instruction of bytecode starts
#pragma gousdt when tcl:inst__done an instruction of bytecode is done
#pragma gousdt when tcl:obj__create an object is made
#pragma gousdt when tcl:obj__free an object is freed
