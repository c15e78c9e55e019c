/*
 * Tcl, configured with --enable-dtrace: Fedora's, in libtcl8.6.so.
 * https://wiki.tcl-lang.org/page/DTrace
 */
enum tcl_code { TCL_OK, TCL_ERROR, TCL_RETURN, TCL_BREAK, TCL_CONTINUE };

provider tcl {
	probe proc__entry(char *name, int words, void *objects);
	probe proc__return(char *name, tcl_code code);
	probe proc__result(char *name, tcl_code code, char *result, void *object);
	probe cmd__entry(char *name, int words, void *objects);
	probe cmd__return(char *name, tcl_code code);
	probe cmd__result(char *name, tcl_code code, char *result, void *object);
	probe inst__start(char *name, int depth, void *objects);
	probe inst__done(char *name, int depth, void *objects);
	probe obj__create(void *object);
	probe obj__free(void *object);
};

#pragma gousdt when tcl:proc__entry a procedure begins
#pragma gousdt when tcl:proc__return a procedure ends
#pragma gousdt when tcl:proc__result a procedure ends, with its result
#pragma gousdt when tcl:cmd__entry a command begins
#pragma gousdt when tcl:cmd__return a command ends
#pragma gousdt when tcl:cmd__result a command ends, with its result
#pragma gousdt when tcl:inst__start an instruction of bytecode starts
#pragma gousdt when tcl:inst__done an instruction of bytecode is done
#pragma gousdt when tcl:obj__create an object is made
#pragma gousdt when tcl:obj__free an object is freed
