/*
 * The GNU C library, configured with --enable-systemtap: Fedora's and RHEL's,
 * Debian's from 2.43 on. The manual has the arguments of memory_sbrk_more and
 * memory_sbrk_less the other way round.
 * https://sourceware.org/glibc/manual/latest/html_node/Internal-Probes.html
 */
#pragma gousdt fires libc:lll_lock_wait* where another thread holds the lock
#pragma gousdt fires libc:memory_*_retry where an arena has no memory left
#pragma gousdt fires libc:memory_mallopt where a program calls mallopt(3)
#pragma gousdt fires libc:memory_tunable_* when a program starts whose GLIBC_TUNABLES set it
#pragma gousdt fires libc:memory_tcache_double_free where memory is freed twice

enum mallopt_parameter {
	M_ARENA_MAX = -8, M_ARENA_TEST, M_PERTURB, M_CHECK_ACTION, M_MMAP_MAX, M_MMAP_THRESHOLD,
	M_TOP_PAD, M_TRIM_THRESHOLD, M_MXFAST = 1
};

provider libc {
	probe memory_heap_new(void *heap, size_t size);
	probe memory_heap_free(void *heap, size_t size);
	probe memory_heap_more(void *heap, size_t size);
	probe memory_heap_less(void *heap, size_t size);
	probe memory_sbrk_more(void *start, size_t size);
	probe memory_sbrk_less(void *end, ssize_t size);
	probe memory_malloc_retry(size_t size);
	probe memory_calloc_retry(size_t size);
	probe memory_realloc_retry(size_t size, void *old);
	probe memory_memalign_retry(size_t size, size_t alignment);
	probe memory_arena_new(void *arena, size_t size);
	probe memory_arena_reuse(void *arena, void *avoided);
	probe memory_arena_reuse_wait(void *mutex, void *arena, void *avoided);
	probe memory_arena_reuse_free_list(void *arena);
	probe memory_arena_retry(size_t size, void *arena);
	probe memory_tcache_double_free(void *memory, size_t size_class);

	probe memory_mallopt(mallopt_parameter parameter, int value);
	probe memory_mallopt_mxfast(size_t value, size_t previous);
	probe memory_mallopt_trim_threshold(size_t value, size_t previous, int was_fixed);
	probe memory_mallopt_top_pad(size_t value, size_t previous, int was_fixed);
	probe memory_mallopt_mmap_threshold(size_t value, size_t previous, int was_fixed);
	probe memory_mallopt_mmap_max(int value, int previous, int was_fixed);
	probe memory_mallopt_perturb(int value, int previous);
	probe memory_mallopt_arena_test(size_t value, size_t previous);
	probe memory_mallopt_arena_max(size_t value, size_t previous);
	probe memory_mallopt_free_dyn_thresholds(size_t mmap_threshold, size_t trim_threshold);
	probe memory_tunable_tcache_max_bytes(size_t value, size_t previous);
	probe memory_tunable_tcache_count(size_t value, size_t previous);
	probe memory_tunable_tcache_unsorted_limit(size_t value, size_t previous);

	probe pthread_create(pthread_t *thread, void *attributes, void *start_routine, void *argument);
	probe pthread_start(pthread_t thread, void *start_routine, void *argument);
	probe pthread_join(pthread_t thread);
	probe pthread_join_ret(pthread_t thread, int error, void *returned);

	probe mutex_init(void *mutex);
	probe mutex_destroy(void *mutex);
	probe mutex_entry(void *mutex);
	probe mutex_acquired(void *mutex);
	probe mutex_timedlock_entry(void *mutex, void *timeout);
	probe mutex_clocklock_entry(void *mutex, int clock, void *timeout);
	probe mutex_timedlock_acquired(void *mutex);
	probe mutex_release(void *mutex);

	probe cond_init(void *condition, void *attributes);
	probe cond_destroy(void *condition);
	probe cond_wait(void *condition, void *mutex);
	probe cond_timedwait(void *condition, void *mutex, void *timeout);
	probe cond_signal(void *condition);
	probe cond_broadcast(void *condition);

	probe rwlock_destroy(void *rwlock);
	probe rdlock_entry(void *rwlock);
	probe rdlock_acquire_read(void *rwlock);
	probe wrlock_entry(void *rwlock);
	probe wrlock_acquire_write(void *rwlock);
	probe rwlock_unlock(void *rwlock);

	probe lll_lock_wait(int *lock);
	probe lll_lock_wait_private(int *lock);
	probe setjmp(void *environment, int saves_signals, void *address);
	probe longjmp(void *environment, int value, void *address);
	probe longjmp_target(void *environment, int value, void *address);
};

/* Up to 2.33, threads were a library of their own. */
provider libpthread {
	probe pthread_create(pthread_t *thread, void *attributes, void *start_routine, void *argument);
	probe pthread_start(pthread_t thread, void *start_routine, void *argument);
	probe pthread_join(pthread_t thread);
	probe pthread_join_ret(pthread_t thread, int error, void *returned);

	probe mutex_init(void *mutex);
	probe mutex_destroy(void *mutex);
	probe mutex_entry(void *mutex);
	probe mutex_acquired(void *mutex);
	probe mutex_timedlock_entry(void *mutex, void *timeout);
	probe mutex_clocklock_entry(void *mutex, int clock, void *timeout);
	probe mutex_timedlock_acquired(void *mutex);
	probe mutex_release(void *mutex);

	probe cond_init(void *condition, void *attributes);
	probe cond_destroy(void *condition);
	probe cond_wait(void *condition, void *mutex);
	probe cond_timedwait(void *condition, void *mutex, void *timeout);
	probe cond_signal(void *condition);
	probe cond_broadcast(void *condition);

	probe rwlock_destroy(void *rwlock);
	probe rdlock_entry(void *rwlock);
	probe rdlock_acquire_read(void *rwlock);
	probe wrlock_entry(void *rwlock);
	probe wrlock_acquire_write(void *rwlock);
	probe rwlock_unlock(void *rwlock);

	probe lll_lock_wait(int *lock);
	probe lll_lock_wait_private(int *lock);
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

	probe lll_lock_wait(int *lock);
	probe lll_lock_wait_private(int *lock);
	probe setjmp(void *environment, int saves_signals, void *address);
	probe longjmp(void *environment, int value, void *address);
	probe longjmp_target(void *environment, int value, void *address);
};
