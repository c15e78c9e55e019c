/*
 * libstdc++ of GCC 4.7 and newer, and what is linked with it statically.
 * https://gcc.gnu.org/onlinedocs/libstdc++/manual/debug.html
 */
provider libstdcxx {
	probe throw(void *object, void *type_info);
	probe rethrow(void *object, void *type_info);
	probe catch(void *object, void *type_info);
};
