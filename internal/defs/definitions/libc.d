/*
 * The GNU C library, configured with --enable-systemtap: Fedora's and RHEL's,
 * Debian's from 2.43 on. The manual has the arguments of memory_sbrk_more and
 * memory_sbrk_less the other way round.
 * https://sourceware.org/glibc/manual/latest/html_node/Internal-Probes.html
 */
#pragma gousdt fires libc:* missing: the C library contains probes if it was configured with --enable-systemtap, as Fedora's and RHEL's is, and Debian's from glibc 2.43 on
#pragma gousdt fires rtld:* missing: the C library contains probes if it was configured with --enable-systemtap, as Fedora's and RHEL's is, and Debian's from glibc 2.43 on
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

	call mutex_wait(void *mutex) {
		each;
		mutex_entry .. mutex_acquired;
		mutex_timedlock_entry .. mutex_timedlock_acquired;
		mutex_clocklock_entry .. mutex_timedlock_acquired;
	};
	call rwlock_read_wait(void *rwlock) {
		each;
		rdlock_entry .. rdlock_acquire_read;
	};
	call rwlock_write_wait(void *rwlock) {
		each;
		wrlock_entry .. wrlock_acquire_write;
	};
	call thread_join(pthread_t thread) {
		each;
		pthread_join .. pthread_join_ret;
	};

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

	call mutex_wait(void *mutex) {
		each;
		mutex_entry .. mutex_acquired;
		mutex_timedlock_entry .. mutex_timedlock_acquired;
		mutex_clocklock_entry .. mutex_timedlock_acquired;
	};
	call rwlock_read_wait(void *rwlock) {
		each;
		rdlock_entry .. rdlock_acquire_read;
	};
	call rwlock_write_wait(void *rwlock) {
		each;
		wrlock_entry .. wrlock_acquire_write;
	};
	call thread_join(pthread_t thread) {
		each;
		pthread_join .. pthread_join_ret;
	};

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

#pragma gousdt time lib*:mutex_wait a thread gets a mutex, at once or after it has waited
#pragma gousdt time lib*:rwlock_read_wait a thread gets a lock for readers and writers to read
#pragma gousdt time lib*:rwlock_write_wait a thread gets a lock for readers and writers to write
#pragma gousdt time lib*:thread_join a thread waits for the end of another
#pragma gousdt time rtld:init the libraries of a program are loaded at its start
#pragma gousdt time rtld:map new libraries are mapped and relocated
#pragma gousdt time rtld:reloc new libraries are relocated
#pragma gousdt time rtld:unmap libraries are unmapped

#pragma gousdt when libc:memory_heap_new malloc makes a heap, for an arena of other threads than the first
#pragma gousdt when libc:memory_heap_free malloc gives back a heap
#pragma gousdt when libc:memory_heap_more a heap of malloc grows
#pragma gousdt when libc:memory_heap_less a heap of malloc shrinks
#pragma gousdt when libc:memory_sbrk_more the main arena grows
#pragma gousdt when libc:memory_sbrk_less the main arena shrinks
#pragma gousdt when libc:memory_malloc_retry malloc tries once more, in another arena
#pragma gousdt when libc:memory_calloc_retry calloc tries once more, in another arena
#pragma gousdt when libc:memory_realloc_retry realloc tries once more, in another arena
#pragma gousdt when libc:memory_memalign_retry memalign or the like tries once more, in another arena
#pragma gousdt when libc:memory_arena_new malloc makes an arena
#pragma gousdt when libc:memory_arena_reuse a thread takes an arena that others use, because of the limit
#pragma gousdt when libc:memory_arena_reuse_wait a thread starts to wait for an arena that others use
#pragma gousdt when libc:memory_arena_reuse_free_list a thread takes an arena that none uses any more
#pragma gousdt when libc:memory_arena_retry an arena has no memory left, and another one is tried
#pragma gousdt when libc:memory_tcache_double_free memory in the cache of a thread is freed again
#pragma gousdt when libc:memory_mallopt a parameter of malloc is to be set
#pragma gousdt when libc:memory_mallopt_mxfast the limit of sizes in fastbins is set
#pragma gousdt when libc:memory_mallopt_trim_threshold M_TRIM_THRESHOLD is set
#pragma gousdt when libc:memory_mallopt_top_pad M_TOP_PAD is set
#pragma gousdt when libc:memory_mallopt_mmap_threshold M_MMAP_THRESHOLD is set
#pragma gousdt when libc:memory_mallopt_mmap_max M_MMAP_MAX is set
#pragma gousdt when libc:memory_mallopt_perturb M_PERTURB is set
#pragma gousdt when libc:memory_mallopt_arena_test M_ARENA_TEST is set
#pragma gousdt when libc:memory_mallopt_arena_max M_ARENA_MAX is set
#pragma gousdt when libc:memory_mallopt_free_dyn_thresholds free adapts the thresholds to what is freed
#pragma gousdt when libc:memory_tunable_tcache_max_bytes the limit of sizes in the cache of a thread is set
#pragma gousdt when libc:memory_tunable_tcache_count the limit of blocks in the cache of a thread is set
#pragma gousdt when libc:memory_tunable_tcache_unsorted_limit the limit of blocks that are looked through for the cache is set
#pragma gousdt when lib*:pthread_create a thread is being made
#pragma gousdt when lib*:pthread_start a new thread starts
#pragma gousdt when lib*:pthread_join a thread starts to wait for the end of another
#pragma gousdt when lib*:pthread_join_ret a thread has waited for the end of another
#pragma gousdt when lib*:mutex_init a mutex is set up
#pragma gousdt when lib*:mutex_destroy a mutex is destroyed
#pragma gousdt when lib*:mutex_entry a thread wants a mutex
#pragma gousdt when lib*:mutex_acquired a thread has a mutex
#pragma gousdt when lib*:mutex_timedlock_entry a thread wants a mutex, for some time
#pragma gousdt when lib*:mutex_clocklock_entry a thread wants a mutex, until a time of some clock
#pragma gousdt when lib*:mutex_timedlock_acquired a thread has a mutex that it wanted for some time
#pragma gousdt when lib*:mutex_release a thread has released a mutex
#pragma gousdt when lib*:cond_init a condition variable is set up
#pragma gousdt when lib*:cond_destroy a condition variable is destroyed
#pragma gousdt when lib*:cond_wait a thread waits for a condition
#pragma gousdt when lib*:cond_timedwait a thread waits for a condition, for some time
#pragma gousdt when lib*:cond_signal one thread that waits for a condition is woken up
#pragma gousdt when lib*:cond_broadcast all threads that wait for a condition are woken up
#pragma gousdt when lib*:rwlock_destroy a lock for readers and writers is destroyed
#pragma gousdt when lib*:rdlock_entry a thread wants such a lock to read
#pragma gousdt when lib*:rdlock_acquire_read a thread has such a lock to read
#pragma gousdt when lib*:wrlock_entry a thread wants such a lock to write
#pragma gousdt when lib*:wrlock_acquire_write a thread has such a lock to write
#pragma gousdt when lib*:rwlock_unlock a lock for readers and writers is released
#pragma gousdt when *:lll_lock_wait a thread starts to wait in the kernel for a lock of the library
#pragma gousdt when *:lll_lock_wait_private a thread starts to wait in the kernel for a lock of the library that one process has
#pragma gousdt when *:setjmp setjmp is called
#pragma gousdt when *:longjmp longjmp is called
#pragma gousdt when *:longjmp_target longjmp is about to go on at its target
#pragma gousdt when rtld:init_start the loading of a program's libraries starts
#pragma gousdt when rtld:init_complete the libraries of a program are loaded, and can run
#pragma gousdt when rtld:map_start new libraries start to be mapped, as by dlopen
#pragma gousdt when rtld:map_complete new libraries are mapped
#pragma gousdt when rtld:map_failed new libraries cannot be loaded
#pragma gousdt when rtld:reloc_start the relocation of new libraries starts
#pragma gousdt when rtld:reloc_complete new libraries are relocated
#pragma gousdt when rtld:unmap_start libraries start to be unmapped, as by dlclose
#pragma gousdt when rtld:unmap_complete libraries are unmapped
