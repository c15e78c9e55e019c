/*
 * CPython 3.6 and newer, configured with --with-dtrace, as Debian's is.
 * https://docs.python.org/3/howto/instrumentation.html
 */
provider python {
	probe function__entry(const char *filename, const char *function, int line);
	probe function__return(const char *filename, const char *function, int line);
	probe line(const char *filename, const char *function, int line);
	probe gc__start(int generation);
	probe gc__done(long collected);
	probe import__find__load__start(const char *module);
	probe import__find__load__done(const char *module, int is_found);
	probe audit(const char *event, void *arguments);
};

/* Python 3.11 is the version that has both this symbol and python:line. */
#pragma gousdt helper python:function__entry python:line with PyFrame_GetLasti
#pragma gousdt fires python:function__entry in Python 3.11 only while python:line is attached too (usdttrace does that), or the program has a profile function (sys.setprofile)

/* PyThreadState.frame and f_back; from 3.11 on cframe, current_frame and previous. */
#pragma gousdt frame python:function _PyThreadState_UncheckedGet 24,24
#pragma gousdt frame python:function _PyThreadState_UncheckedGet 56,8,48 with PyFrame_GetLasti

#pragma gousdt fires python:*exception* never: exceptions have no probe, and a function that is left by one fires function__return
#pragma gousdt fires python:*raise* never: exceptions have no probe, and a function that is left by one fires function__return
#pragma gousdt fires python:* missing: CPython contains probes if it was configured with --with-dtrace, as Debian's, Ubuntu's and Fedora's is, and not that of python.org, pyenv and uv

#pragma gousdt time python:function a function runs; of a generator or coroutine, a part between two of its yields or awaits
#pragma gousdt time python:gc a garbage collection runs
#pragma gousdt time python:import__find__load a module is found and executed, with what it imports itself

#pragma gousdt when python:function__entry a function begins
#pragma gousdt when python:function__return a function ends
#pragma gousdt when python:line a line is about to be run
#pragma gousdt when python:gc__start a garbage collection starts
#pragma gousdt when python:gc__done a garbage collection is done
#pragma gousdt when python:import__find__load__start a module that is not loaded yet starts to be imported
#pragma gousdt when python:import__find__load__done the import of a module is done
#pragma gousdt when python:audit an audit event is raised (sys.audit)
