/*
 * GLib, configured with systemtap support: Fedora's and RHEL's, in
 * libglib-2.0.so.0 and libgobject-2.0.so.0.
 * https://gitlab.gnome.org/GNOME/glib/-/blob/main/glib/glib.stp.in
 */
provider glib {
	probe mem__alloc(void *memory, unsigned size, unsigned is_zeroed, unsigned may_fail);
	probe mem__realloc(void *memory, void *old, unsigned size, unsigned may_fail);
	probe mem__free(void *memory);
	probe slice__alloc(void *memory, unsigned size);
	probe slice__free(void *memory, unsigned size);
	probe quark__new(char *text, unsigned quark);
	probe main__before_dispatch(char *source);
	probe main__after_dispatch(char *source);
};

#pragma gousdt match glib:mem memory
#pragma gousdt match glib:slice memory
#pragma gousdt time glib:mem memory of g_malloc is in use, unless g_realloc moves it
#pragma gousdt time glib:slice a slice of memory is in use

provider gobject {
	probe type__new(char *name, unsigned long parent, unsigned long gtype);
	probe object__new(void *object, unsigned long gtype);
	probe object__ref(void *object, unsigned long gtype, unsigned references);
	probe object__unref(void *object, unsigned long gtype, unsigned references);
	probe object__dispose(void *object, unsigned long gtype, unsigned is_last);
	probe object__dispose__end(void *object, unsigned long gtype, unsigned is_last);
	probe object__finalize(void *object, unsigned long gtype);
	probe object__finalize__end(void *object, unsigned long gtype);
	probe signal__new(unsigned signal, char *name, unsigned long gtype);
	probe signal__emit(unsigned signal, unsigned detail, void *object, unsigned long gtype);
	probe signal__emit__end(unsigned signal, unsigned detail, void *object, unsigned long gtype);
};

#pragma gousdt when glib:mem__alloc memory is allocated (g_malloc)
#pragma gousdt when glib:mem__realloc the size of memory is changed (g_realloc)
#pragma gousdt when glib:mem__free memory is freed (g_free)
#pragma gousdt when glib:slice__alloc a slice is allocated (g_slice_alloc)
#pragma gousdt when glib:slice__free a slice is freed (g_slice_free1)
#pragma gousdt when glib:quark__new a text gets a number (g_quark_from_string)
#pragma gousdt when glib:main__before_dispatch the main loop calls what handles a source
#pragma gousdt when glib:main__after_dispatch what handles a source has returned
#pragma gousdt when gobject:type__new a type is registered
#pragma gousdt when gobject:object__new an object is made
#pragma gousdt when gobject:object__ref a reference to an object is taken
#pragma gousdt when gobject:object__unref a reference to an object is given back
#pragma gousdt when gobject:object__dispose an object starts to give back what it refers to
#pragma gousdt when gobject:object__dispose__end an object has given back what it refers to
#pragma gousdt when gobject:object__finalize an object starts to be freed
#pragma gousdt when gobject:object__finalize__end an object is freed
#pragma gousdt when gobject:signal__new a signal is defined
#pragma gousdt when gobject:signal__emit a signal starts to be emitted
#pragma gousdt when gobject:signal__emit__end all handlers of a signal have run
