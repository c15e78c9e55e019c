/* libvirt 1.0 and newer: its daemons and libvirt.so. https://libvirt.org/ */
/*
 * Of the program remote. Those below 20 have no name, because they mean
 * something else in other programs, such as admin, qemu and keepalive.
 */
enum libvirt_procedure {
	domain_get_vcpus = 20, connect_list_defined_domains, domain_lookup_by_id,
	domain_lookup_by_name, domain_lookup_by_uuid, connect_num_of_defined_domains, domain_pin_vcpu,
	domain_reboot, domain_resume, domain_set_autostart, domain_set_max_memory, domain_set_memory,
	domain_set_vcpus, domain_shutdown, domain_suspend, domain_undefine,
	connect_list_defined_networks, connect_list_domains, connect_list_networks, network_create,
	network_create_xml, network_define_xml, network_destroy, network_get_xml_desc,
	network_get_autostart, network_get_bridge_name, network_lookup_by_name, network_lookup_by_uuid,
	network_set_autostart, network_undefine, connect_num_of_defined_networks,
	connect_num_of_domains, connect_num_of_networks, domain_core_dump, domain_restore, domain_save,
	domain_get_scheduler_type, domain_get_scheduler_parameters, domain_set_scheduler_parameters,
	connect_get_hostname, connect_supports_feature, domain_migrate_prepare, domain_migrate_perform,
	domain_migrate_finish, domain_block_stats, domain_interface_stats, auth_list, auth_sasl_init,
	auth_sasl_start, auth_sasl_step, auth_polkit, connect_num_of_storage_pools,
	connect_list_storage_pools, connect_num_of_defined_storage_pools,
	connect_list_defined_storage_pools, connect_find_storage_pool_sources, storage_pool_create_xml,
	storage_pool_define_xml, storage_pool_create, storage_pool_build, storage_pool_destroy,
	storage_pool_delete, storage_pool_undefine, storage_pool_refresh, storage_pool_lookup_by_name,
	storage_pool_lookup_by_uuid, storage_pool_lookup_by_volume, storage_pool_get_info,
	storage_pool_get_xml_desc, storage_pool_get_autostart, storage_pool_set_autostart,
	storage_pool_num_of_volumes, storage_pool_list_volumes, storage_vol_create_xml,
	storage_vol_delete, storage_vol_lookup_by_name, storage_vol_lookup_by_key,
	storage_vol_lookup_by_path, storage_vol_get_info, storage_vol_get_xml_desc,
	storage_vol_get_path, node_get_cells_free_memory, node_get_free_memory, domain_block_peek,
	domain_memory_peek, connect_domain_event_register, connect_domain_event_deregister,
	domain_event_lifecycle, domain_migrate_prepare2, domain_migrate_finish2, connect_get_uri,
	node_num_of_devices, node_list_devices, node_device_lookup_by_name, node_device_get_xml_desc,
	node_device_get_parent, node_device_num_of_caps, node_device_list_caps, node_device_dettach,
	node_device_re_attach, node_device_reset, domain_get_security_label, node_get_security_model,
	node_device_create_xml, node_device_destroy, storage_vol_create_xml_from,
	connect_num_of_interfaces, connect_list_interfaces, interface_lookup_by_name,
	interface_lookup_by_mac_string, interface_get_xml_desc, interface_define_xml,
	interface_undefine, interface_create, interface_destroy, connect_domain_xml_from_native,
	connect_domain_xml_to_native, connect_num_of_defined_interfaces,
	connect_list_defined_interfaces, connect_num_of_secrets, connect_list_secrets,
	secret_lookup_by_uuid, secret_define_xml, secret_get_xml_desc, secret_set_value,
	secret_get_value, secret_undefine, secret_lookup_by_usage, domain_migrate_prepare_tunnel,
	connect_is_secure, domain_is_active, domain_is_persistent, network_is_active,
	network_is_persistent, storage_pool_is_active, storage_pool_is_persistent, interface_is_active,
	connect_get_lib_version, connect_compare_cpu, domain_memory_stats, domain_attach_device_flags,
	domain_detach_device_flags, connect_baseline_cpu, domain_get_job_info, domain_abort_job,
	storage_vol_wipe, domain_migrate_set_max_downtime, connect_domain_event_register_any,
	connect_domain_event_deregister_any, domain_event_reboot, domain_event_rtc_change,
	domain_event_watchdog, domain_event_io_error, domain_event_graphics,
	domain_update_device_flags, nwfilter_lookup_by_name, nwfilter_lookup_by_uuid,
	nwfilter_get_xml_desc, connect_num_of_nwfilters, connect_list_nwfilters, nwfilter_define_xml,
	nwfilter_undefine, domain_managed_save, domain_has_managed_save_image,
	domain_managed_save_remove, domain_snapshot_create_xml, domain_snapshot_get_xml_desc,
	domain_snapshot_num, domain_snapshot_list_names, domain_snapshot_lookup_by_name,
	domain_has_current_snapshot, domain_snapshot_current, domain_revert_to_snapshot,
	domain_snapshot_delete, domain_get_block_info, domain_event_io_error_reason,
	domain_create_with_flags, domain_set_memory_parameters, domain_get_memory_parameters,
	domain_set_vcpus_flags, domain_get_vcpus_flags, domain_open_console, domain_is_updated,
	connect_get_sysinfo, domain_set_memory_flags, domain_set_blkio_parameters,
	domain_get_blkio_parameters, domain_migrate_set_max_speed, storage_vol_upload,
	storage_vol_download, domain_inject_nmi, domain_screenshot, domain_get_state,
	domain_migrate_begin3, domain_migrate_prepare3, domain_migrate_prepare_tunnel3,
	domain_migrate_perform3, domain_migrate_finish3, domain_migrate_confirm3,
	domain_set_scheduler_parameters_flags, interface_change_begin, interface_change_commit,
	interface_change_rollback, domain_get_scheduler_parameters_flags, domain_event_control_error,
	domain_pin_vcpu_flags, domain_send_key, node_get_cpu_stats, node_get_memory_stats,
	domain_get_control_info, domain_get_vcpu_pin_info, domain_undefine_flags, domain_save_flags,
	domain_restore_flags, domain_destroy_flags, domain_save_image_get_xml_desc,
	domain_save_image_define_xml, domain_block_job_abort, domain_get_block_job_info,
	domain_block_job_set_speed, domain_block_pull, domain_event_block_job,
	domain_migrate_get_max_speed, domain_block_stats_flags, domain_snapshot_get_parent,
	domain_reset, domain_snapshot_num_children, domain_snapshot_list_children_names,
	domain_event_disk_change, domain_open_graphics, node_suspend_for_duration, domain_block_resize,
	domain_set_block_io_tune, domain_get_block_io_tune, domain_set_numa_parameters,
	domain_get_numa_parameters, domain_set_interface_parameters, domain_get_interface_parameters,
	domain_shutdown_flags, storage_vol_wipe_pattern, storage_vol_resize,
	domain_pm_suspend_for_duration, domain_get_cpu_stats, domain_get_disk_errors,
	domain_set_metadata, domain_get_metadata, domain_block_rebase, domain_pm_wakeup,
	domain_event_tray_change, domain_event_pmwakeup, domain_event_pmsuspend,
	domain_snapshot_is_current, domain_snapshot_has_metadata, connect_list_all_domains,
	domain_list_all_snapshots, domain_snapshot_list_all_children, domain_event_balloon_change,
	domain_get_hostname, domain_get_security_label_list, domain_pin_emulator,
	domain_get_emulator_pin_info, connect_list_all_storage_pools, storage_pool_list_all_volumes,
	connect_list_all_networks, connect_list_all_interfaces, connect_list_all_node_devices,
	connect_list_all_nwfilters, connect_list_all_secrets, node_set_memory_parameters,
	node_get_memory_parameters, domain_block_commit, network_update, domain_event_pmsuspend_disk,
	node_get_cpu_map, domain_fstrim, domain_send_process_signal, domain_open_channel,
	node_device_lookup_scsi_host_by_wwn, domain_get_job_stats,
	domain_migrate_get_compression_cache, domain_migrate_set_compression_cache,
	node_device_detach_flags, domain_migrate_begin3_params, domain_migrate_prepare3_params,
	domain_migrate_prepare_tunnel3_params, domain_migrate_perform3_params,
	domain_migrate_finish3_params, domain_migrate_confirm3_params, domain_set_memory_stats_period,
	domain_create_xml_with_files, domain_create_with_files, domain_event_device_removed,
	connect_get_cpu_model_names, connect_network_event_register_any,
	connect_network_event_deregister_any, network_event_lifecycle,
	connect_domain_event_callback_register_any, connect_domain_event_callback_deregister_any,
	domain_event_callback_lifecycle, domain_event_callback_reboot,
	domain_event_callback_rtc_change, domain_event_callback_watchdog,
	domain_event_callback_io_error, domain_event_callback_graphics,
	domain_event_callback_io_error_reason, domain_event_callback_control_error,
	domain_event_callback_block_job, domain_event_callback_disk_change,
	domain_event_callback_tray_change, domain_event_callback_pmwakeup,
	domain_event_callback_pmsuspend, domain_event_callback_balloon_change,
	domain_event_callback_pmsuspend_disk, domain_event_callback_device_removed,
	domain_core_dump_with_format, domain_fsfreeze, domain_fsthaw, domain_get_time, domain_set_time,
	domain_event_block_job_2, node_get_free_pages, network_get_dhcp_leases,
	connect_get_domain_capabilities, domain_open_graphics_fd, connect_get_all_domain_stats,
	domain_block_copy, domain_event_callback_tunable, node_alloc_pages,
	domain_event_callback_agent_lifecycle, domain_get_fsinfo, domain_define_xml_flags,
	domain_get_iothread_info, domain_pin_iothread, domain_interface_addresses,
	domain_event_callback_device_added, domain_add_iothread, domain_del_iothread,
	domain_set_user_password, domain_rename, domain_event_callback_migration_iteration,
	connect_register_close_callback, connect_unregister_close_callback,
	connect_event_connection_closed, domain_event_callback_job_completed,
	domain_migrate_start_post_copy, domain_get_perf_events, domain_set_perf_events,
	domain_event_callback_device_removal_failed, connect_storage_pool_event_register_any,
	connect_storage_pool_event_deregister_any, storage_pool_event_lifecycle,
	domain_get_guest_vcpus, domain_set_guest_vcpus, storage_pool_event_refresh,
	connect_node_device_event_register_any, connect_node_device_event_deregister_any,
	node_device_event_lifecycle, node_device_event_update, storage_vol_get_info_flags,
	domain_event_callback_metadata_change, connect_secret_event_register_any,
	connect_secret_event_deregister_any, secret_event_lifecycle, secret_event_value_changed,
	domain_set_vcpu, domain_event_block_threshold, domain_set_block_threshold,
	domain_migrate_get_max_downtime, domain_managed_save_get_xml_desc,
	domain_managed_save_define_xml, domain_set_lifecycle_action,
	storage_pool_lookup_by_target_path, domain_detach_device_alias, connect_compare_hypervisor_cpu,
	connect_baseline_hypervisor_cpu, node_get_sev_info, domain_get_launch_security_info,
	nwfilter_binding_lookup_by_port_dev, nwfilter_binding_get_xml_desc,
	nwfilter_binding_create_xml, nwfilter_binding_delete, connect_list_all_nwfilter_bindings,
	domain_set_iothread_params, connect_get_storage_pool_capabilities, network_list_all_ports,
	network_port_lookup_by_uuid, network_port_create_xml, network_port_get_parameters,
	network_port_set_parameters, network_port_get_xml_desc, network_port_delete,
	domain_checkpoint_create_xml, domain_checkpoint_get_xml_desc, domain_list_all_checkpoints,
	domain_checkpoint_list_all_children, domain_checkpoint_lookup_by_name,
	domain_checkpoint_get_parent, domain_checkpoint_delete, domain_get_guest_info,
	connect_set_identity, domain_agent_set_response_timeout, domain_backup_begin,
	domain_backup_get_xml_desc, domain_event_memory_failure, domain_authorized_ssh_keys_get,
	domain_authorized_ssh_keys_set, domain_get_messages, domain_start_dirty_rate_calc,
	node_device_define_xml, node_device_undefine, node_device_create, nwfilter_define_xml_flags,
	network_define_xml_flags, node_device_get_autostart, node_device_set_autostart,
	node_device_is_persistent, node_device_is_active, network_create_xml_flags,
	domain_event_memory_device_size_change, domain_set_launch_security_state, domain_save_params,
	domain_restore_params, domain_abort_job_flags, domain_fd_associate, network_set_metadata,
	network_get_metadata, network_event_callback_metadata_change, node_device_update,
	domain_graphics_reload, domain_get_autostart_once, domain_set_autostart_once,
	domain_set_throttle_group, domain_del_throttle_group, domain_event_nic_mac_change
};
enum libvirt_program {
	remote = 0x20008086, qemu = 0x20008087, lxc = 0x00068000, admin = 0x06900690,
	keepalive = 0x6b656570, lock = 0xea7beef, logd = 0x87539319
};
enum libvirt_message { call, reply, message, stream, call_with_fds, reply_with_fds, stream_hole };
enum libvirt_keepalive { ping = 1, pong };
enum libvirt_status { ok, error, continues };

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
	probe rpc_server_client_msg_tx_queue(void *client, int size, enum libvirt_program program,
		int version, enum libvirt_procedure procedure, enum libvirt_message type,
		enum libvirt_status status, int serial);
	probe rpc_server_client_msg_rx(void *client, int size, enum libvirt_program program,
		int version, enum libvirt_procedure procedure, enum libvirt_message type,
		enum libvirt_status status, int serial);
	probe rpc_server_client_auth_allow(void *client, int auth_type, const char *identity);
	probe rpc_server_client_auth_deny(void *client, int auth_type, const char *identity);
	probe rpc_server_client_auth_fail(void *client, int auth_type);
	probe rpc_client_new(void *client, void *socket);
	probe rpc_client_dispose(void *client);
	probe rpc_client_msg_tx_queue(void *client, int size, enum libvirt_program program,
		int version, enum libvirt_procedure procedure, enum libvirt_message type,
		enum libvirt_status status, int serial);
	probe rpc_client_msg_rx(void *client, int size, enum libvirt_program program, int version,
		enum libvirt_procedure procedure, enum libvirt_message type, enum libvirt_status status,
		int serial);
	probe rpc_keepalive_new(void *keepalive, void *client);
	probe rpc_keepalive_start(void *keepalive, void *client, int interval, int count);
	probe rpc_keepalive_stop(void *keepalive, void *client);
	probe rpc_keepalive_send(void *keepalive, void *client, enum libvirt_program program,
		int version, enum libvirt_keepalive procedure);
	probe rpc_keepalive_received(void *keepalive, void *client, enum libvirt_program program,
		int version, enum libvirt_keepalive procedure);
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
