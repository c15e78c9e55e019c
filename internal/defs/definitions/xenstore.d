/*
 * Xen's xenstored, the store that its domains share, as Xen up to 4.x defined
 * its probes.
 * https://wiki.xenproject.org/wiki/XenStore
 */
provider xenstore {
	probe msg(uint32_t transaction, unsigned domain, pid_t pid, int type, const char *message);
	probe reply(uint32_t transaction, unsigned domain, pid_t pid, int type, const char *reply);
	probe error(uint32_t transaction, unsigned domain, pid_t pid, const char *error);
	probe watch_event(unsigned domain, pid_t pid, const char *event);
};

#pragma gousdt when xenstore:msg a request arrives
#pragma gousdt when xenstore:reply a request is answered
#pragma gousdt when xenstore:error a request is answered by an error
#pragma gousdt when xenstore:watch_event a domain or process is told that what it watches has changed
