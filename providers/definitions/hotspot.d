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
#pragma gousdt fires hotspot_jni:* when native code calls the JNI function
