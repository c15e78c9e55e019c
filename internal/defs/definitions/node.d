/*
 * Node.js up to 18, configured with --with-dtrace, as neither Debian's nor
 * nodejs.org's is.
 * https://github.com/nodejs/node/blob/v18.x/src/node.stp
 */
enum node_gc_type { scavenge = 1, mark_sweep_compact };

provider node {
	probe net__server__connection(void *connection, char *remote, int port, int fd);
	probe net__stream__end(void *connection, char *remote, int port, int fd);
	probe http__server__request(void *request, void *connection, char *remote, int port,
		char *method, char *url, int fd);
	probe http__server__response(void *connection, char *remote, int port, int fd);
	probe http__client__request(void *request, void *connection, char *remote, int port,
		char *method, char *url, int fd);
	probe http__client__response(void *connection, char *remote, int port, int fd);
	probe gc__start(node_gc_type type, int flags);
	probe gc__start(node_gc_type type, int flags, void *isolate);
	probe gc__done(node_gc_type type, int flags);
	probe gc__done(node_gc_type type, int flags, void *isolate);
};

#pragma gousdt fires node:* missing: Node.js contains probes up to version 18, if it was configured with --with-dtrace, as neither Debian's nor nodejs.org's is
#pragma gousdt when node:net__server__connection a server accepts a connection
#pragma gousdt when node:net__stream__end a connection ends
#pragma gousdt when node:http__server__request a server has received the head of an HTTP request
#pragma gousdt when node:http__server__response a server has sent an HTTP response
#pragma gousdt when node:http__client__request a client sends an HTTP request
#pragma gousdt when node:http__client__response a client has received an HTTP response
#pragma gousdt when node:gc__start a garbage collection starts
#pragma gousdt when node:gc__done a garbage collection is done
