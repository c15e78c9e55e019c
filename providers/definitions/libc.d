/*
 * The GNU C library, configured with --enable-systemtap: Fedora's and RHEL's,
 * Debian's from 2.43 on.
 * https://sourceware.org/glibc/manual/latest/html_node/Internal-Probes.html
 */
provider libc {
	probe memory_heap_new(void *heap, size_t size);
	probe memory_heap_free(void *heap, size_t size);
	probe memory_heap_more(void *heap, size_t size);
	probe memory_heap_less(void *heap, size_t size);
	probe memory_sbrk_more(void *size, void *end);
	probe memory_sbrk_less(void *size, void *end);
	probe memory_malloc_retry(size_t size);
	probe memory_calloc_retry(size_t size);
	probe memory_realloc_retry(size_t size, void *old);
	probe memory_memalign_retry(size_t size, size_t alignment);
	probe memory_arena_new(void *arena, size_t size);
};

provider rtld {
	probe init_start(int namespace, void *debug);
	probe init_complete(int namespace, void *debug);
	probe map_start(int namespace, void *debug);
	probe map_complete(int namespace, void *debug, void *link_map);
	probe map_failed(int namespace, void *debug);
	probe reloc_start(int namespace, void *debug);
	probe reloc_complete(int namespace, void *debug, void *link_map);
	probe unmap_start(int namespace, void *debug);
	probe unmap_complete(int namespace, void *debug);
};
