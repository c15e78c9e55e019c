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
	/* Many requests are in flight on one thread, and can end on another one. */
	call qcow2_writev(void *coroutine, int64_t offset, int64_t bytes) {
		each;
		qcow2_writev_start_req .. qcow2_writev_done_req;
	};
	call thread_pool(void *pool, void *request, void *opaque) {
		each;
		thread_pool_submit .. thread_pool_complete;
	};
	call virtio_blk(void *device, void *request, uint64_t sector, size_t sectors) {
		each;
		virtio_blk_handle_read .. virtio_blk_req_complete;
		virtio_blk_handle_write .. virtio_blk_req_complete;
	};
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

#pragma gousdt match qemu:qcow2_writev coroutine
#pragma gousdt match qemu:thread_pool request
#pragma gousdt match qemu:virtio_blk request
#pragma gousdt time qemu:qcow2_writev a write to a qcow2 image is worked on
#pragma gousdt time qemu:thread_pool a request waits for a thread of the pool, and is worked on
#pragma gousdt time qemu:virtio_blk a request of the guest is worked on

#pragma gousdt when qemu:vm_state_notify a machine starts or stops to run
#pragma gousdt when qemu:runstate_set the state of a machine changes
#pragma gousdt when qemu:qemu_system_shutdown_request a shutdown is asked for
#pragma gousdt when qemu:qemu_system_powerdown_request the guest is asked to power down
#pragma gousdt when qemu:system_wakeup_request a wakeup is asked for
#pragma gousdt when qemu:handle_qmp_command a QMP command arrives
#pragma gousdt when qemu:handle_hmp_command a command of a person at the monitor arrives
#pragma gousdt when qemu:monitor_qmp_respond a QMP command is answered
#pragma gousdt when qemu:monitor_qmp_cmd_in_band a QMP command starts in its turn
#pragma gousdt when qemu:kvm_ioctl KVM is asked for something
#pragma gousdt when qemu:kvm_vm_ioctl KVM is asked for something about a machine
#pragma gousdt when qemu:kvm_vcpu_ioctl KVM is asked for something about a virtual processor
#pragma gousdt when qemu:kvm_run_exit a virtual processor leaves the guest
#pragma gousdt when qemu:memory_region_ops_read a guest reads from a device's memory
#pragma gousdt when qemu:memory_region_ops_write a guest writes to a device's memory
#pragma gousdt when qemu:cpu_in a guest reads from a port
#pragma gousdt when qemu:cpu_out a guest writes to a port
#pragma gousdt when qemu:bdrv_open_common an image is opened
#pragma gousdt when qemu:blk_co_preadv a device's read of its disk starts
#pragma gousdt when qemu:blk_co_pwritev a device's write to its disk starts
#pragma gousdt when qemu:bdrv_co_preadv_part a read of an image starts
#pragma gousdt when qemu:bdrv_co_pwritev_part a write to an image starts
#pragma gousdt when qemu:qcow2_writev_start_req a write to a qcow2 image starts
#pragma gousdt when qemu:qcow2_writev_done_req a write to a qcow2 image is done
#pragma gousdt when qemu:file_paio_submit a request to a file is given to a thread
#pragma gousdt when qemu:thread_pool_submit a thread of the pool is given work
#pragma gousdt when qemu:thread_pool_complete a thread of the pool has done its work
#pragma gousdt when qemu:job_state_transition a job, such as a backup, changes its state
#pragma gousdt when qemu:job_completed a job ends
#pragma gousdt when qemu:nbd_client_handshake a client connects to an export of a network block device
#pragma gousdt when qemu:virtio_queue_notify a guest says that there is something in a queue
#pragma gousdt when qemu:virtio_notify a guest is told that there is something in a queue
#pragma gousdt when qemu:virtio_set_status a guest sets the status of a virtio device
#pragma gousdt when qemu:virtqueue_pop a request is taken from a queue
#pragma gousdt when qemu:virtqueue_fill the result of a request is put into a queue
#pragma gousdt when qemu:virtqueue_flush the results in a queue are shown to the guest
#pragma gousdt when qemu:virtio_blk_handle_read a guest's read of a disk arrives
#pragma gousdt when qemu:virtio_blk_handle_write a guest's write to a disk arrives
#pragma gousdt when qemu:virtio_blk_rw_complete a guest's read or write is done
#pragma gousdt when qemu:virtio_blk_req_complete a guest's request is answered
#pragma gousdt when qemu:scsi_req_parsed a SCSI command arrives
#pragma gousdt when qemu:scsi_req_cancel a SCSI command is cancelled
#pragma gousdt when qemu:pci_cfg_read a guest reads the configuration of a PCI device
#pragma gousdt when qemu:pci_cfg_write a guest writes the configuration of a PCI device
#pragma gousdt when qemu:usb_port_attach a USB device is plugged in
#pragma gousdt when qemu:usb_port_detach a USB device is unplugged
#pragma gousdt when qemu:migrate_set_state a migration changes its state
#pragma gousdt when qemu:migrate_transferred a migration says how far it is
#pragma gousdt when qemu:savevm_section_start a part of a machine's state starts to be saved
#pragma gousdt when qemu:savevm_section_end a part of a machine's state is saved
