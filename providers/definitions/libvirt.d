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
