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
