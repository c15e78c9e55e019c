/*
 * libstdc++ of GCC 4.7 and newer, and what is linked with it statically.
 * https://gcc.gnu.org/onlinedocs/libstdc++/manual/debug.html
 */
provider libstdcxx {
	/* A type_info begins with a pointer to its functions and one to its name. */
	probe throw(void *object, cxx_type *type_info = arg1[1]);
	probe rethrow(void *object, cxx_type *type_info = arg1[1]);
	probe catch(void *object, cxx_type *type_info = arg1[1]);
};

#pragma gousdt when libstdcxx:throw an exception is thrown, not by std::make_exception_ptr
#pragma gousdt when libstdcxx:rethrow a caught exception is thrown again, not by std::rethrow_exception
#pragma gousdt when libstdcxx:catch a handler begins with an exception; its type is unknown after std::rethrow_exception
