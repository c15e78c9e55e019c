/*
 * HotSpot, the Java virtual machine of OpenJDK, 8 and newer, in libjvm.so. Its
 * texts have no zero byte at the end: each is followed by its length.
 * https://docs.oracle.com/en/java/javase/17/vm/dtrace-probes-hotspot-vm.html
 */
provider hotspot {
	probe vm__init__begin();
	probe vm__init__end();
	probe vm__shutdown();

	probe thread__start(char *thread, uintptr_t thread_length, uintptr_t java_thread_id,
		uintptr_t native_thread_id, uintptr_t is_daemon);
	probe thread__stop(char *thread, uintptr_t thread_length, uintptr_t java_thread_id,
		uintptr_t native_thread_id, uintptr_t is_daemon);
	probe thread__sleep__begin(long long time);
	probe thread__sleep__end(int is_interrupted);
	probe thread__yield();
	probe thread__park__begin(uintptr_t parker, int is_absolute, long long time);
	probe thread__park__end(uintptr_t parker);
	probe thread__unpark(uintptr_t parker);

	probe class__loaded(char *class, uintptr_t class_length, void *loader, bool is_shared);
	probe class__unloaded(char *class, uintptr_t class_length, void *loader, bool is_shared);
	probe class__initialization__required(char *class, uintptr_t class_length, void *loader,
		intptr_t thread_type);
	probe class__initialization__recursive(char *class, uintptr_t class_length, void *loader,
		intptr_t thread_type, int has_waited);
	probe class__initialization__concurrent(char *class, uintptr_t class_length, void *loader,
		intptr_t thread_type, int has_waited);
	probe class__initialization__erroneous(char *class, uintptr_t class_length, void *loader,
		intptr_t thread_type, int has_waited);
	probe class__initialization__super__failed(char *class, uintptr_t class_length, void *loader,
		intptr_t thread_type, int has_waited);
	probe class__initialization__clinit(char *class, uintptr_t class_length, void *loader,
		intptr_t thread_type, int has_waited);
	probe class__initialization__error(char *class, uintptr_t class_length, void *loader,
		intptr_t thread_type, int has_waited);
	probe class__initialization__end(char *class, uintptr_t class_length, void *loader,
		intptr_t thread_type, int has_waited);

	probe gc__begin(bool is_full);
	probe gc__end();
	probe mem__pool__gc__begin(char *manager, uintptr_t manager_length, char *pool,
		uintptr_t pool_length, uintptr_t initial, uintptr_t used, uintptr_t committed,
		uintptr_t maximum);
	probe mem__pool__gc__end(char *manager, uintptr_t manager_length, char *pool,
		uintptr_t pool_length, uintptr_t initial, uintptr_t used, uintptr_t committed,
		uintptr_t maximum);

	probe method__compile__begin(char *compiler, uintptr_t compiler_length, char *class,
		uintptr_t class_length, char *method, uintptr_t method_length, char *signature,
		uintptr_t signature_length);
	probe method__compile__end(char *compiler, uintptr_t compiler_length, char *class,
		uintptr_t class_length, char *method, uintptr_t method_length, char *signature,
		uintptr_t signature_length, bool is_success);
	probe compiled__method__load(char *class, uintptr_t class_length, char *method,
		uintptr_t method_length, char *signature, uintptr_t signature_length, void *code,
		uintptr_t code_size);
	probe compiled__method__unload(char *class, uintptr_t class_length, char *method,
		uintptr_t method_length, char *signature, uintptr_t signature_length);

	probe monitor__contended__enter(uintptr_t java_thread_id, uintptr_t monitor, char *class,
		uintptr_t class_length);
	probe monitor__contended__entered(uintptr_t java_thread_id, uintptr_t monitor, char *class,
		uintptr_t class_length);
	probe monitor__contended__exit(uintptr_t java_thread_id, uintptr_t monitor, char *class,
		uintptr_t class_length);
	probe monitor__wait(uintptr_t java_thread_id, uintptr_t monitor, char *class,
		uintptr_t class_length, uintptr_t timeout);
	probe monitor__waited(uintptr_t java_thread_id, uintptr_t monitor, char *class,
		uintptr_t class_length);
	probe monitor__notify(uintptr_t java_thread_id, uintptr_t monitor, char *class,
		uintptr_t class_length);
	probe monitor__notifyAll(uintptr_t java_thread_id, uintptr_t monitor, char *class,
		uintptr_t class_length);

	/*
	 * The time that a thread waits to enter a monitor. monitor__contended__exit
	 * is another thread's: it leaves a monitor for which others wait.
	 */
	call monitor__contended(uintptr_t java_thread_id, uintptr_t monitor, char *class,
		uintptr_t class_length) {
		monitor__contended__enter .. monitor__contended__entered;
	};
	call object__wait(uintptr_t java_thread_id, uintptr_t monitor, char *class,
		uintptr_t class_length, uintptr_t timeout) {
		each;
		monitor__wait .. monitor__waited;
	};

	/* The initialization of a class can need that of other classes. */
	call class__initialization(char *class, uintptr_t class_length, void *loader,
		intptr_t thread_type) {
		each;
		class__initialization__required .. class__initialization__end;
		class__initialization__required .. class__initialization__recursive;
		class__initialization__required .. class__initialization__concurrent;
		failed class__initialization__erroneous;
		failed class__initialization__super__failed;
		failed class__initialization__error;
	};

	probe object__alloc(uintptr_t java_thread_id, char *class, uintptr_t class_length,
		uintptr_t size);
	probe method__entry(uintptr_t java_thread_id, char *class, uintptr_t class_length, char *method,
		uintptr_t method_length, char *signature, uintptr_t signature_length);
	probe method__return(uintptr_t java_thread_id, char *class, uintptr_t class_length,
		char *method, uintptr_t method_length, char *signature, uintptr_t signature_length);

	probe vmops__request(char *operation, uintptr_t operation_length, int mode);
	probe vmops__begin(char *operation, uintptr_t operation_length, int mode);
	probe vmops__end(char *operation, uintptr_t operation_length, int mode);
};

#pragma gousdt fires hotspot:method__entry only with -XX:+DTraceMethodProbes (or -XX:+ExtendedDTraceProbes, in older releases)
#pragma gousdt fires hotspot:method__return only with -XX:+DTraceMethodProbes (or -XX:+ExtendedDTraceProbes, in older releases)
#pragma gousdt fires hotspot:object__alloc only with -XX:+DTraceAllocProbes (or -XX:+ExtendedDTraceProbes, in older releases)
#pragma gousdt fires hotspot:monitor__* only with -XX:+DTraceMonitorProbes (or -XX:+ExtendedDTraceProbes, in older releases)
#pragma gousdt apart hotspot:monitor__contended__enter
/* All pools of a collection begin before the first ends. */
#pragma gousdt match hotspot:mem__pool__gc pool
/*
 * A carrier thread runs virtual threads, each until it waits, in Continuation.run.
 * Their frames are moved away from its stack then. unmount follows for those that
 * ran before the probes were attached.
 */
#pragma gousdt stacks hotspot:method virtual-threads class == "jdk/internal/vm/Continuation" && (method == "run" || method == "unmount")
#pragma gousdt time hotspot:vm__init the virtual machine starts
#pragma gousdt time hotspot:thread a thread lives
#pragma gousdt time hotspot:thread__sleep a thread sleeps in Thread.sleep
#pragma gousdt time hotspot:thread__park a thread is parked, as to wait for a lock of java.util.concurrent or for work
#pragma gousdt time hotspot:class__initialization a thread initializes a class, or finds that another one has done so
#pragma gousdt time hotspot:gc a collection stops the program, without the time until all threads have stopped (-Xlog:safepoint); with ZGC, part of its pauses
#pragma gousdt time hotspot:mem__pool__gc a collection of a memory pool runs, with that of other pools
#pragma gousdt time hotspot:method__compile a method is compiled, by a thread of the compiler
#pragma gousdt time hotspot:monitor__contended a thread waits to enter a monitor, from JDK 24 on without virtual threads
#pragma gousdt time hotspot:object__wait a thread is in Object.wait, also to have the monitor again; from JDK 24 on a virtual thread only until it gives up its carrier, some microseconds
#pragma gousdt time hotspot:method a method runs
#pragma gousdt time hotspot:vmops an operation of the virtual machine runs, most of them with all threads stopped, without the time until they have (-Xlog:safepoint)
#pragma gousdt note hotspot:object__alloc size JDK 17 passes garbage for objects that are not arrays: count objects, do not add sizes up
#pragma gousdt fires hotspot:*exception* never: exceptions have no probe, and hotspot:object__alloc by class shows those that are made
#pragma gousdt fires hotspot_jni:* when native code calls the JNI function

#pragma gousdt when hotspot:vm__init__begin the virtual machine starts
#pragma gousdt when hotspot:vm__init__end the virtual machine is ready
#pragma gousdt when hotspot:vm__shutdown the virtual machine ends
#pragma gousdt when hotspot:thread__start a thread starts
#pragma gousdt when hotspot:thread__stop a thread ends
#pragma gousdt when hotspot:thread__sleep__begin a thread starts to sleep
#pragma gousdt when hotspot:thread__sleep__end a thread has slept
#pragma gousdt when hotspot:thread__yield a thread offers its processor to others
#pragma gousdt when hotspot:thread__park__begin a thread parks, as to wait for a lock of java.util.concurrent
#pragma gousdt when hotspot:thread__park__end a thread has been parked
#pragma gousdt when hotspot:thread__unpark a parked thread is woken up
#pragma gousdt when hotspot:class__loaded a class was loaded
#pragma gousdt when hotspot:class__unloaded a class is unloaded
#pragma gousdt when hotspot:class__initialization__required a class is used that is not initialized yet
#pragma gousdt when hotspot:class__initialization__recursive a thread needs a class that it is initializing itself
#pragma gousdt when hotspot:class__initialization__concurrent another thread has initialized the class meanwhile
#pragma gousdt when hotspot:class__initialization__erroneous a class is used whose initialization has failed
#pragma gousdt when hotspot:class__initialization__super__failed a class is not initialized because its superclass failed to be
#pragma gousdt when hotspot:class__initialization__clinit the static initializer of a class is called
#pragma gousdt when hotspot:class__initialization__error the static initializer of a class has failed
#pragma gousdt when hotspot:class__initialization__end a class is initialized
#pragma gousdt when hotspot:gc__begin a garbage collection starts
#pragma gousdt when hotspot:gc__end a garbage collection is done
#pragma gousdt when hotspot:mem__pool__gc__begin a garbage collection of a memory pool starts
#pragma gousdt when hotspot:mem__pool__gc__end a garbage collection of a memory pool is done
#pragma gousdt when hotspot:method__compile__begin the compilation of a method starts
#pragma gousdt when hotspot:method__compile__end the compilation of a method is done
#pragma gousdt when hotspot:compiled__method__load compiled code of a method is installed
#pragma gousdt when hotspot:compiled__method__unload compiled code of a method is removed
#pragma gousdt when hotspot:monitor__contended__enter a thread starts to wait to enter a monitor
#pragma gousdt when hotspot:monitor__contended__entered a thread has waited, and enters a monitor
#pragma gousdt when hotspot:monitor__contended__exit a thread leaves a monitor for which others wait
#pragma gousdt when hotspot:monitor__wait a thread starts to wait in Object.wait
#pragma gousdt when hotspot:monitor__waited a thread has waited in Object.wait
#pragma gousdt when hotspot:monitor__notify a thread calls Object.notify
#pragma gousdt when hotspot:monitor__notifyAll a thread calls Object.notifyAll
#pragma gousdt when hotspot:object__alloc an object is allocated
#pragma gousdt when hotspot:method__entry a method begins
#pragma gousdt when hotspot:method__return a method ends
#pragma gousdt when hotspot:vmops__request an operation of the virtual machine is asked for
#pragma gousdt when hotspot:vmops__begin an operation of the virtual machine starts, most of them with all threads stopped
#pragma gousdt when hotspot:vmops__end an operation of the virtual machine is done
