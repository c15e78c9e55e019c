/*
 * PHP 5.4 and newer, configured with --enable-dtrace, as Debian's is.
 * https://www.php.net/manual/en/features.dtrace.introduction.php
 */
provider php {
	probe request__startup(char *filename, char *uri, char *method);
	probe request__shutdown(char *filename, char *uri, char *method);
	probe compile__file__entry(char *filename, char *translated);
	probe compile__file__return(char *filename, char *translated);
	probe execute__entry(char *filename, int line);
	probe execute__return(char *filename, int line);
	probe function__entry(char *function, char *filename, int line, char *class, char *scope);
	probe function__return(char *function, char *filename, int line, char *class, char *scope);
	probe exception__thrown(char *class);
	/* not the name itself: a zend_string, which has it */
	probe exception__caught(void *class_string);
	probe error(char *message, char *filename, int line);

	/* php-fpm has no names of the request any more where it ends */
	call request(char *filename, char *uri, char *method) {
		each;
		request__startup .. request__shutdown;
	};

	/* a request that runs into its time limit has no ends of what it runs */
	call function(char *function, char *filename, int line, char *class, char *scope) {
		each;
		function__entry .. function__return;
		over request__shutdown;
	};
	call execute(char *filename, int line) {
		each;
		execute__entry .. execute__return;
		over request__shutdown;
	};
};

#pragma gousdt fires php:* missing: PHP contains probes if it was configured with --enable-dtrace, as Debian 12's is, and not Debian 13's
#pragma gousdt fires php:compile__* only with the environment variable USE_ZEND_DTRACE=1, which sets zend_dtrace_enabled
#pragma gousdt fires php:execute__* only with the environment variable USE_ZEND_DTRACE=1, which sets zend_dtrace_enabled
#pragma gousdt fires php:function__* only with the environment variable USE_ZEND_DTRACE=1, which sets zend_dtrace_enabled
#pragma gousdt fires php:error in no run of PHP 8.2, with USE_ZEND_DTRACE=1 or without; other versions were not tried

#pragma gousdt note php:compile__file__entry filename null, or a small number, for files that are included: filename of the end and start.translated name each file

#pragma gousdt time php:request a request is served
#pragma gousdt time php:compile__file a file is compiled
#pragma gousdt time php:execute the code of a file or function runs; of a generator, a part between two of its yields
#pragma gousdt time php:function a function runs; of a generator, a part between two of its yields

#pragma gousdt when php:request__startup a request starts
#pragma gousdt when php:request__shutdown a request ends
#pragma gousdt when php:compile__file__entry the compilation of a file starts
#pragma gousdt when php:compile__file__return the compilation of a file is done
#pragma gousdt when php:execute__entry the code of a file or function starts to run
#pragma gousdt when php:execute__return the code of a file or function has run
#pragma gousdt when php:function__entry a function begins
#pragma gousdt when php:function__return a function ends
#pragma gousdt when php:exception__thrown an exception is thrown
#pragma gousdt when php:exception__caught an exception is caught
#pragma gousdt when php:error an error or a warning is reported, but never in PHP 8.2
