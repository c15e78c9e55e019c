/*
 * Perl, configured with -Dusedtrace: Fedora's and RHEL's, in libperl.so.
 * https://perldoc.perl.org/perldtrace
 */
provider perl {
	probe sub__entry(const char *sub, const char *file, int line, const char *package);
	probe sub__return(const char *sub, const char *file, int line, const char *package);
	probe phase__change(const char *phase, const char *previous);
	probe op__entry(const char *op);
	probe loading__file(const char *file);
	probe loaded__file(const char *file);
};

#pragma gousdt time perl:sub a subroutine runs; of threads of Coro that take turns, the last that began is taken to end first

#pragma gousdt when perl:sub__entry a subroutine begins
#pragma gousdt when perl:sub__return a subroutine ends
#pragma gousdt when perl:phase__change the interpreter goes from one phase to the next, as from RUN to END
#pragma gousdt when perl:op__entry an operation of the interpreter starts
#pragma gousdt when perl:loading__file a file starts to be loaded
#pragma gousdt when perl:loaded__file a file was loaded
