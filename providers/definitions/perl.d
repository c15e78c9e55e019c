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
