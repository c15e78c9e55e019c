/*
 * libstdc++ of GCC 4.7 and newer, and what is linked with it statically.
 * https://gcc.gnu.org/onlinedocs/libstdc++/manual/debug.html
 */
provider libstdcxx {
	probe throw(void *object, void *type_info);
	probe rethrow(void *object, void *type_info);
	probe catch(void *object, void *type_info);
};

#pragma gousdt when libstdcxx:throw an exception is thrown
#pragma gousdt when libstdcxx:rethrow a caught exception is thrown again
#pragma gousdt when libstdcxx:catch a handler begins with an exception
