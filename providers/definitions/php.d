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
};

#pragma gousdt fires php:compile__* only with the environment variable USE_ZEND_DTRACE=1
#pragma gousdt fires php:execute__* only with the environment variable USE_ZEND_DTRACE=1
#pragma gousdt fires php:function__* only with the environment variable USE_ZEND_DTRACE=1
