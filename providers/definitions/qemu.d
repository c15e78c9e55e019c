/*
 * QEMU, configured with --enable-trace-backends=dtrace: Fedora's and RHEL's. It
 * has thousands of events, which change between versions: these are some for
 * operators. All of an installed one are in /usr/share/qemu/trace-events-all,
 * which --names takes.
 * https://www.qemu.org/docs/master/devel/tracing.html
 */
enum kvm_exit_reason {
	KVM_EXIT_UNKNOWN, KVM_EXIT_EXCEPTION, KVM_EXIT_IO, KVM_EXIT_HYPERCALL, KVM_EXIT_DEBUG,
	KVM_EXIT_HLT, KVM_EXIT_MMIO, KVM_EXIT_IRQ_WINDOW_OPEN, KVM_EXIT_SHUTDOWN,
	KVM_EXIT_FAIL_ENTRY, KVM_EXIT_INTR, KVM_EXIT_SET_TPR, KVM_EXIT_TPR_ACCESS,
	KVM_EXIT_S390_SIEIC, KVM_EXIT_S390_RESET, KVM_EXIT_DCR, KVM_EXIT_NMI,
	KVM_EXIT_INTERNAL_ERROR, KVM_EXIT_OSI, KVM_EXIT_PAPR_HCALL, KVM_EXIT_S390_UCONTROL,
	KVM_EXIT_WATCHDOG, KVM_EXIT_S390_TSCH, KVM_EXIT_EPR, KVM_EXIT_SYSTEM_EVENT,
	KVM_EXIT_S390_STSI, KVM_EXIT_IOAPIC_EOI, KVM_EXIT_HYPERV
};

provider qemu {
	probe vm_state_notify(int is_running, int reason, const char *reason_name);
	probe runstate_set(int old, const char *old_name, int state, const char *state_name);
	probe qemu_system_shutdown_request(int reason);
	probe qemu_system_powerdown_request();
	probe system_wakeup_request(int reason);

	probe handle_qmp_command(void *monitor, const char *request);
	probe handle_hmp_command(void *monitor, const char *line);
	probe monitor_qmp_respond(void *monitor, const char *response);
	probe monitor_qmp_cmd_in_band(const char *id);

	probe kvm_ioctl(int request, void *argument);
	probe kvm_vm_ioctl(int request, void *argument);
	probe kvm_vcpu_ioctl(int vcpu, int request, void *argument);
	probe kvm_run_exit(int vcpu, kvm_exit_reason reason);
	probe memory_region_ops_read(int vcpu, void *region, uint64_t address, uint64_t value,
		unsigned size, const char *name);
	probe memory_region_ops_write(int vcpu, void *region, uint64_t address, uint64_t value,
		unsigned size, const char *name);
	probe cpu_in(unsigned port, char size, unsigned value);
	probe cpu_out(unsigned port, char size, unsigned value);

	probe bdrv_open_common(void *node, const char *filename, int flags, const char *format);
	probe blk_co_preadv(void *backend, void *node, int64_t offset, int64_t bytes, int flags);
	probe blk_co_pwritev(void *backend, void *node, int64_t offset, int64_t bytes, int flags);
	probe bdrv_co_preadv_part(void *node, int64_t offset, int64_t bytes, unsigned flags);
	probe bdrv_co_pwritev_part(void *node, int64_t offset, int64_t bytes, unsigned flags);
	probe qcow2_writev_start_req(void *coroutine, int64_t offset, int64_t bytes);
	probe qcow2_writev_done_req(void *coroutine, int error);
	probe file_paio_submit(void *control, void *opaque, int64_t offset, int bytes, int type);
	probe thread_pool_submit(void *pool, void *request, void *opaque);
	probe thread_pool_complete(void *pool, void *request, void *opaque, int error);
	probe job_state_transition(void *job, int error, const char *legal, const char *from,
		const char *to);
	probe job_completed(void *job, int error);
	probe nbd_client_handshake(const char *export_name);

	probe virtio_queue_notify(void *device, int queue, void *virtqueue);
	probe virtio_notify(void *device, void *virtqueue);
	probe virtio_set_status(void *device, uint8_t status);
	probe virtqueue_pop(void *virtqueue, void *element, unsigned in_count, unsigned out_count);
	probe virtqueue_fill(void *virtqueue, const void *element, unsigned length, unsigned index);
	probe virtqueue_flush(void *virtqueue, unsigned count);
	probe virtio_blk_handle_read(void *device, void *request, uint64_t sector, size_t sectors);
	probe virtio_blk_handle_write(void *device, void *request, uint64_t sector, size_t sectors);
	probe virtio_blk_rw_complete(void *device, void *request, int error);
	probe virtio_blk_req_complete(void *device, void *request, int status);

	probe scsi_req_parsed(int target, int lun, int tag, int command, int mode, int bytes);
	probe scsi_req_cancel(int target, int lun, int tag);
	probe pci_cfg_read(const char *device, uint32_t bus, uint32_t slot, uint32_t function,
		unsigned offset, unsigned value);
	probe pci_cfg_write(const char *device, uint32_t bus, uint32_t slot, uint32_t function,
		unsigned offset, unsigned value);
	probe usb_port_attach(int bus, const char *port, const char *device_speed,
		const char *port_speed);
	probe usb_port_detach(int bus, const char *port);

	probe migrate_set_state(const char *state);
	probe migrate_transferred(uint64_t transferred, uint64_t time_spent, uint64_t bandwidth,
		uint64_t size);
	probe savevm_section_start(const char *id, unsigned section);
	probe savevm_section_end(const char *id, unsigned section, int error);
};
