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
