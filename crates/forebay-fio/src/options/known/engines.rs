//! Options of fio's engines. A name that several engines have is listed once.

use super::{Foreign, OFF, flag, ignored, refused, unless};

const RING: &str = "the driver sets up its ring by itself; see forebay info";
const CALL: &str = "the drivers choose their system calls by themselves";
const ENGINE: &str = "its engine is not supported; name the disk by --filename";
const NVME: &str = "NVMe passthrough is not supported; name the block device by --filename";
const CPU: &str = "the engine cpuio is not supported; run the CPU load in another program";

#[rustfmt::skip]
pub(super) static OPTIONS: &[Foreign] = &[
    // io_uring, libaio and the blocking ones.
    flag(ignored(&["userspace_reap"], "the drivers always reap in user space where they can")),
    ignored(&["nonvectored"], "the drivers choose their system calls by themselves"),
    unless(OFF, flag(ignored(&["hipri"], "completions come by interrupts; the driver does not \
        poll for them"))),
    unless(OFF, flag(ignored(&["registerfiles"], "the driver always registers its file"))),
    refused(&["hipri_percentage", "sqthread_poll_cpu", "force_async"], RING),
    unless(OFF, refused(&["nowait", "uncached"], CALL)),
    refused(&["thp"], "I/O buffers are ordinary memory; set transparent_hugepage in /sys"),
    refused(&["readfua", "writefua", "sg_write_mode", "stream_id"], CALL),
    refused(&["cmd_type", "md_per_io_size", "pi_act", "pi_chk", "apptag", "apptag_mask",
        "write_mode", "verify_mode", "deac"], NVME),
    // Processor, program and file-system engines.
    refused(&["cpuload", "cpuchunks", "cpumode"], CPU),
    refused(&["exit_on_io_done"], CPU),
    refused(&["program", "arguments", "grace_time", "std_redirect"],
        "run the program beside forebay"),
    refused(&["stat_type", "donorname", "inplace", "skip_bad"], ENGINE),
    // Networks.
    refused(&["hostname", "port", "protocol", "proto", "interface", "ttl", "window_size", "mss",
        "netmask",
        "bindname", "verb", "nfs_url", "initiator"], ENGINE),
    refused(&["nodelay"], ENGINE),
    flag(refused(&["listen", "pingpong"], ENGINE)),
    refused(&["server_ip", "serverip", "direct_write_to_pmem", "busy_wait_polling"], ENGINE),
    refused(&["https", "http_host", "http_user", "http_pass", "http_s3_key", "http_s3_keyid",
        "http_s3_region", "http_s3_security_token", "http_s3_storage_class",
        "http_s3_sse_customer_key", "http_s3_sse_customer_algorithm", "http_swift_auth_token",
        "http_mode", "http_verbose", "http_object_mode"], ENGINE),
    // Clusters.
    refused(&["clustername", "conf", "busy_poll", "touch_objects",
        "volume", "brick", "single-instance", "cont", "chunk_size", "object_class", "svcl",
        "namenode", "hdfsdirectory", "hdfs_use_direct"], ENGINE),
    // Other machines' and libraries' ways to a device.
    refused(&["xnvme_async", "xnvme_sync", "xnvme_admin", "xnvme_dev_nsid", "xnvme_dev_subnqn",
        "xnvme_iovec", "xnvme_mem"], ENGINE),
    refused(&["libblkio_driver", "libblkio_path", "libblkio_pre_connect_props",
        "libblkio_num_entries", "libblkio_queue_size", "libblkio_pre_start_props",
        "libblkio_vectored", "libblkio_write_zeroes_on_trim", "libblkio_wait_mode",
        "libblkio_force_enable_completion_eventfd"], ENGINE),
    refused(&["gpu_dev_ids", "cuda_io", "no_completion_thread", "ublk_dev"], ENGINE),
];
