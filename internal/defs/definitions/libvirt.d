/* libvirt 1.0 and newer: its daemons and libvirt.so. https://libvirt.org/ */
provider libvirt {
	probe event_poll_add_handle(int watch, int fd, int events, void *callback, void *opaque,
		void *free_function);
	probe event_poll_update_handle(int watch, int events);
	probe event_poll_remove_handle(int watch);
	probe event_poll_dispatch_handle(int watch, int events);
	probe event_poll_purge_handle(int watch);
	probe event_poll_add_timeout(int timer, int frequency, void *callback, void *opaque,
		void *free_function);
	probe event_poll_update_timeout(int timer, int frequency);
	probe event_poll_remove_timeout(int timer);
	probe event_poll_dispatch_timeout(int timer);
	probe event_poll_purge_timeout(int timer);
	probe event_poll_run(int handles, int timeout);

	/* libvirt 6 and newer */
	probe event_glib_add_handle(int watch, int fd, int events, void *callback, void *opaque,
		void *free_function);
	probe event_glib_update_handle(int watch, int events);
	probe event_glib_remove_handle(int watch);
	probe event_glib_remove_handle_idle(int watch, void *free_function, void *opaque);
	probe event_glib_dispatch_handle(int watch, int events, void *callback, void *opaque);
	probe event_glib_add_timeout(int timer, int frequency, void *callback, void *opaque,
		void *free_function);
	probe event_glib_update_timeout(int timer, int frequency);
	probe event_glib_remove_timeout(int timer);
	probe event_glib_remove_timeout_idle(int timer, void *free_function, void *opaque);
	probe event_glib_dispatch_timeout(int timer, void *callback, void *opaque);

	probe object_new(void *object, const char *class);
	probe object_ref(void *object);
	probe object_unref(void *object);
	probe object_dispose(void *object);

	probe rpc_socket_new(void *socket, int fd, int error_fd, int peer_pid, const char *local_address,
		const char *remote_address);
	probe rpc_socket_dispose(void *socket);
	probe rpc_socket_send_fd(void *socket, int fd);
	probe rpc_socket_recv_fd(void *socket, int fd);
	probe rpc_server_client_new(void *client, void *socket);
	probe rpc_server_client_dispose(void *client);
	probe rpc_server_client_msg_tx_queue(void *client, int size, int program, int version,
		int procedure, int type, int status, int serial);
	probe rpc_server_client_msg_rx(void *client, int size, int program, int version,
		int procedure, int type, int status, int serial);
	probe rpc_server_client_auth_allow(void *client, int auth_type, const char *identity);
	probe rpc_server_client_auth_deny(void *client, int auth_type, const char *identity);
	probe rpc_server_client_auth_fail(void *client, int auth_type);
	probe rpc_client_new(void *client, void *socket);
	probe rpc_client_dispose(void *client);
	probe rpc_client_msg_tx_queue(void *client, int size, int program, int version, int procedure,
		int type, int status, int serial);
	probe rpc_client_msg_rx(void *client, int size, int program, int version, int procedure,
		int type, int status, int serial);
	probe rpc_keepalive_new(void *keepalive, void *client);
	probe rpc_keepalive_start(void *keepalive, void *client, int interval, int count);
	probe rpc_keepalive_stop(void *keepalive, void *client);
	probe rpc_keepalive_send(void *keepalive, void *client, int program, int version,
		int procedure);
	probe rpc_keepalive_received(void *keepalive, void *client, int program, int version,
		int procedure);
	probe rpc_keepalive_timeout(void *keepalive, void *client, int count_to_death, int idle);
	probe rpc_keepalive_dispose(void *keepalive);

	/* Serial numbers are those of a client: calls of two with one number overlap. */
	call rpc_call(void *client, int size, int program, int version, int procedure, int type,
		int status, int serial) {
		alone;
		rpc_client_msg_tx_queue .. rpc_client_msg_rx;
	};
	call rpc_server_call(void *client, int size, int program, int version, int procedure,
		int type, int status, int serial) {
		alone;
		rpc_server_client_msg_rx .. rpc_server_client_msg_tx_queue;
	};

	probe qemu_monitor_new(void *monitor, int fd);
	probe qemu_monitor_ref(void *monitor);
	probe qemu_monitor_unref(void *monitor);
	probe qemu_monitor_close(void *monitor);
	/* before libvirt 8 */
	probe qemu_monitor_new(void *monitor, int references, int fd);
	probe qemu_monitor_ref(void *monitor, int references);
	probe qemu_monitor_unref(void *monitor, int references);
	probe qemu_monitor_close(void *monitor, int references);
	probe qemu_monitor_send_msg(void *monitor, const char *message, int fd);
	probe qemu_monitor_recv_reply(void *monitor, const char *reply);
	probe qemu_monitor_recv_event(void *monitor, const char *event);
	probe qemu_monitor_io_process(void *monitor, const char *buffer, unsigned int buffer_length);
	probe qemu_monitor_io_read(void *monitor, const char *buffer, unsigned int buffer_length,
		int result, int error);
	probe qemu_monitor_io_write(void *monitor, const char *buffer, unsigned int buffer_length,
		int result, int error);
	probe qemu_monitor_io_send_fd(void *monitor, int fd, int result, int error);

	probe rpc_tls_context_new(void *context, const char *ca_certificate,
		const char *ca_revocations, const char *certificate, const char *key, int checks_sanity,
		int requires_valid, int is_server);
	probe rpc_tls_context_dispose(void *context);
	probe rpc_tls_context_session_allow(void *context, void *session, const char *name);
	probe rpc_tls_context_session_deny(void *context, void *session, const char *name);
	probe rpc_tls_context_session_fail(void *context, void *session);
	probe rpc_tls_session_new(void *session, void *context, const char *host, int is_server);
	probe rpc_tls_session_dispose(void *session);
	probe rpc_tls_session_handshake_pass(void *session);
	probe rpc_tls_session_handshake_fail(void *session);
};

#pragma gousdt match libvirt:rpc_call serial
#pragma gousdt match libvirt:rpc_server_call serial
#pragma gousdt time libvirt:rpc_call a client waits for the reply of a daemon
#pragma gousdt time libvirt:rpc_server_call a daemon works on a call
#pragma gousdt apart libvirt:rpc_keepalive_start
#pragma gousdt note libvirt:qemu_monitor_io_read result the bytes that were read, negative after an error
#pragma gousdt note libvirt:qemu_monitor_io_write result the bytes that were written, negative after an error

#pragma gousdt when libvirt:qemu_monitor_new a connection to QEMU's monitor is made
#pragma gousdt when libvirt:qemu_monitor_ref a reference to a connection to QEMU's monitor is added
#pragma gousdt when libvirt:qemu_monitor_unref a reference to a connection to QEMU's monitor is dropped
#pragma gousdt when libvirt:qemu_monitor_close a connection to QEMU's monitor is closed
#pragma gousdt when libvirt:qemu_monitor_send_msg a command is sent to QEMU
#pragma gousdt when libvirt:qemu_monitor_recv_reply QEMU has answered a command
#pragma gousdt when libvirt:qemu_monitor_recv_event QEMU has reported an event
#pragma gousdt when libvirt:qemu_monitor_io_process what QEMU has sent is looked at for whole messages
#pragma gousdt when libvirt:qemu_monitor_io_read bytes were read from QEMU
#pragma gousdt when libvirt:qemu_monitor_io_write bytes were written to QEMU
#pragma gousdt when libvirt:qemu_monitor_io_send_fd a file descriptor was sent to QEMU
#pragma gousdt when libvirt:event_*_add_handle the event loop is asked to watch a file descriptor
#pragma gousdt when libvirt:event_*_update_handle the events that a watch is for change
#pragma gousdt when libvirt:event_*_remove_handle the watch of a file descriptor is removed
#pragma gousdt when libvirt:event_glib_remove_handle_idle the data of a removed watch are freed
#pragma gousdt when libvirt:event_*_dispatch_handle a watched file descriptor has events, which are handled
#pragma gousdt when libvirt:event_poll_purge_handle the event loop forgets a removed watch
#pragma gousdt when libvirt:event_*_add_timeout a timer is set up
#pragma gousdt when libvirt:event_*_update_timeout the interval of a timer changes
#pragma gousdt when libvirt:event_*_remove_timeout a timer is removed
#pragma gousdt when libvirt:event_glib_remove_timeout_idle the data of a removed timer are freed
#pragma gousdt when libvirt:event_*_dispatch_timeout a timer has expired, which is handled
#pragma gousdt when libvirt:event_poll_purge_timeout the event loop forgets a removed timer
#pragma gousdt when libvirt:event_poll_run the event loop waits for events
#pragma gousdt when libvirt:object_new an object is made
#pragma gousdt when libvirt:object_ref a reference to an object is taken
#pragma gousdt when libvirt:object_unref a reference to an object is given back
#pragma gousdt when libvirt:object_dispose the last reference to an object is given back
#pragma gousdt when libvirt:rpc_socket_new a socket is opened or accepted
#pragma gousdt when libvirt:rpc_socket_dispose a socket is closed
#pragma gousdt when libvirt:rpc_socket_send_fd a file descriptor is sent
#pragma gousdt when libvirt:rpc_socket_recv_fd a file descriptor is received
#pragma gousdt when libvirt:rpc_server_client_new a daemon has a new client
#pragma gousdt when libvirt:rpc_server_client_dispose a daemon forgets a client
#pragma gousdt when libvirt:rpc_server_client_msg_tx_queue a daemon queues a message to a client
#pragma gousdt when libvirt:rpc_server_client_msg_rx a daemon has received a message of a client
#pragma gousdt when libvirt:rpc_server_client_auth_allow a client is authenticated
#pragma gousdt when libvirt:rpc_server_client_auth_deny a client is refused
#pragma gousdt when libvirt:rpc_server_client_auth_fail the authentication of a client fails
#pragma gousdt when libvirt:rpc_client_new a client opens a connection
#pragma gousdt when libvirt:rpc_client_dispose a client's connection is forgotten
#pragma gousdt when libvirt:rpc_client_msg_tx_queue a client queues a message
#pragma gousdt when libvirt:rpc_client_msg_rx a client has received a message
#pragma gousdt when libvirt:rpc_keepalive_new keeping a connection alive is set up
#pragma gousdt when libvirt:rpc_keepalive_start keeping a connection alive starts
#pragma gousdt when libvirt:rpc_keepalive_stop keeping a connection alive stops
#pragma gousdt when libvirt:rpc_keepalive_send a message is sent to learn whether the other side is alive, or to answer one
#pragma gousdt when libvirt:rpc_keepalive_received such a message, or its answer, has come
#pragma gousdt when libvirt:rpc_keepalive_timeout an answer has not come in time
#pragma gousdt when libvirt:rpc_keepalive_dispose keeping a connection alive is forgotten
#pragma gousdt when libvirt:rpc_tls_context_new certificates and keys are loaded
#pragma gousdt when libvirt:rpc_tls_context_dispose certificates and keys are forgotten
#pragma gousdt when libvirt:rpc_tls_context_session_allow the certificate of the other side is accepted
#pragma gousdt when libvirt:rpc_tls_context_session_deny the certificate of the other side is refused
#pragma gousdt when libvirt:rpc_tls_context_session_fail the certificate of the other side cannot be checked
#pragma gousdt when libvirt:rpc_tls_session_new a TLS session is set up
#pragma gousdt when libvirt:rpc_tls_session_dispose a TLS session ends
#pragma gousdt when libvirt:rpc_tls_session_handshake_pass a TLS handshake succeeds
#pragma gousdt when libvirt:rpc_tls_session_handshake_fail a TLS handshake fails
