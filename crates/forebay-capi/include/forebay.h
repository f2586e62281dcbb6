/*
 * Forebay: a multi-queue block layer in user space, for C.
 *
 * Made from the source by cbindgen; do not edit. The manual pages begin with forebay(3).
 *
 * Calls return 0 or a count, or a negative errno. forebay_last_error() returns the reason as text.
 * Offsets and lengths are in bytes.
 */

#ifndef FOREBAY_H
#define FOREBAY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

// The write is durable when it ends.
#define FOREBAY_IO_FUA 1

// All writes that ended before its submission become durable before the data of this write.
#define FOREBAY_IO_PREFLUSH 2

// Do not merge this I/O with others.
#define FOREBAY_IO_NOMERGE 4

// Fail with -EAGAIN instead of waiting for a tag.
#define FOREBAY_IO_NOWAIT 8

// The I/O may use a reserved tag, and goes before I/O that may not.
#define FOREBAY_IO_RESERVED 16

// Background I/O, which uses at most async_depth tags of a hardware context.
#define FOREBAY_IO_BACKGROUND 32

// On a flush: make all metadata of the file durable too.
#define FOREBAY_IO_FSYNC 64

// On a flush: cover only what had ended at a durable point, which is the offset of the I/O.
#define FOREBAY_IO_UP_TO 128

// The I/O goes before all other I/O. Add a level from 0, the highest, to 7.
#define FOREBAY_PRIORITY_REAL_TIME (1 << 13)

// The default class. Add a level; the default is 4.
#define FOREBAY_PRIORITY_BEST_EFFORT (2 << 13)

// The I/O goes when there is no other I/O, or after it has waited for long. Add a level.
#define FOREBAY_PRIORITY_IDLE (3 << 13)

// The operation of an I/O.
enum forebay_op {
    // Read into the memory of the I/O.
    FOREBAY_OP_READ = 0,
    // Write the memory of the I/O.
    FOREBAY_OP_WRITE = 1,
    // Make every write that ended before it durable. Has no range and no memory.
    FOREBAY_OP_FLUSH = 2,
    // The range is no longer needed.
    FOREBAY_OP_DISCARD = 3,
    // Make the range read as zeroes.
    FOREBAY_OP_WRITE_ZEROES = 4,
};

// The extent of a sync of a group commit.
enum forebay_sync {
    // The data, and the metadata needed to read it: fdatasync().
    FOREBAY_SYNC_DATA = 0,
    // All metadata as well: fsync().
    FOREBAY_SYNC_ALL = 1,
};

// The content of a range.
enum forebay_extent_kind {
    // Data, or unknown content.
    FOREBAY_EXTENT_KIND_DATA = 0,
    // Reads as zeroes, with space allocated on the device.
    FOREBAY_EXTENT_KIND_ZERO = 1,
    // Reads as zeroes. A write may have to allocate space first.
    FOREBAY_EXTENT_KIND_HOLE = 2,
};

// The reaction of the library to a late request.
enum forebay_late_stage {
    // The device was asked to cancel it.
    FOREBAY_LATE_STAGE_CANCELLED = 0,
    // It cannot be cancelled, so the library waits for it.
    FOREBAY_LATE_STAGE_AWAITED = 1,
    // It has not ended within the grace period, so the device counts as gone.
    FOREBAY_LATE_STAGE_GIVEN_UP = 2,
};

// An open disk. Any number of threads may use it at once.
struct forebay_disk;

// Group commit for a file: threads share its syncs. Any number of threads may use it at once.
struct forebay_group_commit;

// A hold on a disk: it keeps I/O from the device until forebay_release(). Any thread may release
// it.
struct forebay_hold;

// An owner of I/O on a disk: a tenant, a connection, a job. Any number of threads may use it at
// once.
struct forebay_owner;

// A completion queue of a disk. It belongs to the thread that opened it.
struct forebay_queue;

// A request from a disk to its back end. Only one thread at a time may use it.
// forebay_request_end() ends it.
struct forebay_request;

// Begins nr requests, in any order. Each has to be ended once, by forebay_request_end(), during
// the call or later, on any thread.
typedef void (*forebay_submit_fn)(void *context, struct forebay_request **requests, uint32_t nr);

// Called once, when the disk is closed and no request is left.
typedef void (*forebay_close_fn)(void *context);

// A device of the caller's own. Set all fields; those without a use are 0.
struct forebay_backend {
    // sizeof(struct forebay_backend). Later versions may append fields.
    uint32_t size;
    // The unit of offsets and lengths, a power of two from 1 to 4096; 0 for 512.
    uint32_t logical_block_size;
    // The size of the disk in bytes: a multiple of the logical block size, not 0, and at most
    // INT64_MAX.
    uint64_t capacity;
    // The name of the back end, for reports. It is copied.
    const char *name;
    // Passed to the functions.
    void *context;
    // Must be set. Any thread that uses the disk may call it. It must not wait for I/O of its own
    // disk. The array of requests is valid only during the call.
    forebay_submit_fn submit;
    // May be NULL. Not called if the disk could not be opened.
    forebay_close_fn close;
    // The largest discard in bytes, at least one block and 512; 0 if there is none.
    uint64_t max_discard;
    // The largest write of zeroes in bytes, at least one block and 512; 0 if there is none.
    uint64_t max_write_zeroes;
    // 1 if writes may be lost before the next flush, 0 if every write is durable when it ends.
    uint32_t volatile_cache;
    // 1 if the disk is read-only.
    uint32_t read_only;
    // 1 if the back end makes a write durable when forebay_request_flags() returns FOREBAY_IO_FUA.
    // If 0, a flush follows each write that must be durable.
    uint32_t fua;
    // Must be 0. Reserved for a later version.
    uint32_t reserved;
    // Settings of the disk in the syntax of a spec, such as "queue_depth=64&io_timeout_ms=5000";
    // NULL for the defaults.
    const char *settings;
};

// A range of a disk with one kind of content.
struct forebay_extent {
    // The length in bytes. Never 0.
    uint64_t len;
    // One of enum forebay_extent_kind.
    uint32_t kind;
    // Always 0. Reserved for a later version.
    uint32_t reserved;
};

// A request that has exceeded its time limit.
struct forebay_late {
    // The first byte on the disk; 0 for a flush.
    uint64_t offset;
    // The number of bytes; 0 for a flush.
    uint64_t len;
    // One of enum forebay_op.
    uint32_t op;
    // One of enum forebay_late_stage.
    uint32_t stage;
};

// A key of a spec, and its value.
struct forebay_option {
    // The key, such as "direct".
    const char *key;
    // The value, such as "on".
    const char *value;
};

// One I/O for forebay_queue_submit(). Set all fields; those without a use are 0.
struct forebay_io {
    // sizeof(struct forebay_io). Later versions may append fields.
    uint32_t size;
    // One of enum forebay_op.
    uint32_t op;
    // Any of FOREBAY_IO_...
    uint32_t flags;
    // The number of entries of iov; 0 if buf is the memory.
    uint32_t iovcnt;
    // The memory of a read or write, len bytes. It belongs to the device until the completion has
    // been reaped, or the queue closed. NULL for other operations, and with iov.
    void *buf;
    // The memory in several parts, or NULL. The list is copied; len is the sum of its parts.
    const struct iovec *iov;
    // The length in bytes; 0 for a flush.
    uint64_t len;
    // The first byte on the disk.
    uint64_t offset;
    // Returned with the completion.
    uint64_t user_data;
    // The I/O priority: FOREBAY_PRIORITY_... plus a level, as in ioprio_set(2). 0: best effort,
    // level 4. Only mq-deadline and bfq order by the class.
    uint32_t priority;
    // The number of the owner whose limits the I/O counts against: see forebay_owner_number(). 0:
    // no owner.
    uint32_t owner;
};

// The completion of an I/O.
struct forebay_completion {
    // The number of the I/O.
    uint64_t user_data;
    // The number of bytes moved, fewer than requested only at the end of a file, or a negative
    // errno.
    int64_t result;
    // The point to wait for until this write is durable: see forebay_durable_wait(). 0 if it is
    // durable already or nothing was written.
    uint64_t durable_point;
    // How long the I/O waited for a tag, in nanoseconds; 0 if it did not wait.
    uint64_t tag_wait_ns;
    // 0, for fields of later versions.
    uint64_t reserved[4];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Opens a disk on a back end of the caller: a device of its own. Stores a handle in *disk.
//
// Returns 0, or a negative errno.
int forebay_backend_open(const struct forebay_backend *backend, struct forebay_disk **disk);

// Creates a group commit for the open file of a descriptor, which is duplicated. All syncs of the
// file have to go through it. sync is one of enum forebay_sync.
//
// Returns 0, or a negative errno.
int forebay_commit_open(int fd, uint32_t sync, struct forebay_group_commit **commit);

// Closes a group commit. Calls that are using it end as usual, and the last of them frees it.
//
// Returns 0, or a negative errno: -EBADF if it is already closed.
int forebay_commit_close(struct forebay_group_commit *commit);

// Waits until all writes to the file that returned before this call are on stable storage. May
// make the sync itself, also for other threads.
//
// Returns 0, or a negative errno, also if an earlier loss is not acknowledged.
int forebay_commit(struct forebay_group_commit *commit);

// Stores a point in *point, for forebay_commit_since(). Take it before the write.
//
// Returns 0, or a negative errno.
int forebay_commit_point(struct forebay_group_commit *commit, uint64_t *point);

// Waits as forebay_commit() does for writes that began after a point, and fails exactly for the
// losses that concern them.
//
// Returns 0, or a negative errno.
int forebay_commit_since(struct forebay_group_commit *commit, uint64_t point);

// Acknowledges a failed sync, so that forebay_commit() works again. Write the uncommitted data
// again first, or give it up.
//
// Returns 1 if there was a loss, 0 if not, or a negative errno.
int forebay_commit_acknowledge_loss(struct forebay_group_commit *commit);

// Stores the numbers of commits, of syncs, and of failed syncs. Each pointer may be NULL.
//
// Returns 0, or a negative errno.
int forebay_commit_stats(struct forebay_group_commit *commit,
                         uint64_t *commits,
                         uint64_t *syncs,
                         uint64_t *losses);

// Reads len bytes at offset into buf, and waits until they are read.
//
// Returns the number of bytes, less than len only at the end of a file, or a negative errno.
int64_t forebay_read(struct forebay_disk *disk, void *buf, size_t len, uint64_t offset);

// Writes len bytes of buf at offset, and waits until they are written. They are durable after the
// next forebay_flush() that succeeds.
//
// Returns the number of bytes, or a negative errno.
int64_t forebay_write(struct forebay_disk *disk, const void *buf, size_t len, uint64_t offset);

// Writes as forebay_write() does, and waits until the data is durable.
//
// Returns the number of bytes, or a negative errno.
int64_t forebay_write_durable(struct forebay_disk *disk,
                              const void *buf,
                              size_t len,
                              uint64_t offset);

// Reads at offset into iovcnt buffers, and waits until they are read. At most 1024 buffers.
//
// Returns the number of bytes, or a negative errno.
int64_t forebay_readv(struct forebay_disk *disk,
                      const struct iovec *iov,
                      uint32_t iovcnt,
                      uint64_t offset);

// Writes iovcnt buffers at offset, one after another, and waits until they are written. At most
// 1024 buffers.
//
// Returns the number of bytes, or a negative errno.
int64_t forebay_writev(struct forebay_disk *disk,
                       const struct iovec *iov,
                       uint32_t iovcnt,
                       uint64_t offset);

// Makes every write that ended before this call durable, and waits until it is. After a failure,
// writes since the last successful flush may be lost: see forebay_acknowledge_loss().
//
// Returns 0, or a negative errno.
int forebay_flush(struct forebay_disk *disk);

// Does the same as forebay_flush(), and makes all metadata of the file durable too.
//
// Returns 0, or a negative errno.
int forebay_fsync(struct forebay_disk *disk);

// Discards len bytes at offset: the device may free their space. The contents of the range
// afterwards depend on the device.
//
// Returns 0, or a negative errno: -EOPNOTSUPP if the device cannot discard.
int forebay_discard(struct forebay_disk *disk, uint64_t offset, uint64_t len);

// Makes len bytes at offset read as zeroes, and waits until they do.
//
// Returns 0, or a negative errno: -EOPNOTSUPP if the device cannot do it without data.
int forebay_write_zeroes(struct forebay_disk *disk, uint64_t offset, uint64_t len);

// Stores the size of the disk in *bytes: UINT64_MAX for a file that grows (capacity=growing).
//
// Returns 0, or a negative errno.
int forebay_capacity(struct forebay_disk *disk, uint64_t *bytes);

// Reads the size of the file or block device again. If it has grown, the disk accepts I/O up to
// the new size, and all threads may use it when this returns. A disk never shrinks.
//
// Returns 0, or a negative errno.
int forebay_grow(struct forebay_disk *disk);

// Lets I/O reach the device again after it was gone. Call it when the device is back. Until then
// all I/O fails with -ENODEV.
//
// Returns 0, or a negative errno.
int forebay_revive(struct forebay_disk *disk);

// Stores the current durable point in *point. It covers all writes to the disk that have ended so
// far, by any thread. 0 if every write is durable when it ends.
//
// Returns 0, or a negative errno.
int forebay_durable_point(struct forebay_disk *disk, uint64_t *point);

// Waits until all writes up to a durable point are on stable storage. All threads that wait share
// flushes.
//
// Returns 0, or a negative errno.
int forebay_durable_wait(struct forebay_disk *disk, uint64_t point);

// Returns 1 if all writes up to a durable point are known to be on stable storage, 0 if not, or a
// negative errno. Never waits.
int forebay_durable_test(struct forebay_disk *disk, uint64_t point);

// Acknowledges the writes that a failed flush may have lost: write them again, or give them up.
// Then flushes work again. Writes with a durable point above *after and up to *up_to are
// concerned. Both pointers may be NULL.
//
// Returns 1 if there was a loss, 0 if not, or a negative errno.
int forebay_acknowledge_loss(struct forebay_disk *disk, uint64_t *after, uint64_t *up_to);

// Does the same as forebay_acknowledge_loss() without acknowledging the loss: flushes that cover
// these writes keep failing.
//
// Returns 1 if there is a loss, 0 if not, or a negative errno.
int forebay_lost_writes(struct forebay_disk *disk, uint64_t *after, uint64_t *up_to);

// Returns the reason of the last failed call of this thread, as one line of text. Never NULL; an
// empty text if no call has failed. The text is valid until the next call of this thread fails.
const char *forebay_last_error(void);

// Stores which parts of len bytes at offset hold data: at most max extents, in order and without
// gaps. The extents cover the range up to the end of the disk, or less if there are more than max.
// May wait for the device.
//
// Returns the number of extents, or a negative errno.
int forebay_block_status(struct forebay_disk *disk,
                         uint64_t offset,
                         uint64_t len,
                         struct forebay_extent *extents,
                         uint32_t max);

// Freezes a disk: new I/O waits, and the call returns when all earlier I/O has ended. It waits for
// at most timeout_ms milliseconds, or without a limit if timeout_ms is negative. Other threads
// with queues must reap their I/O meanwhile. Until the hold is released, blocking calls wait,
// including those of this thread. Stores a handle in *hold.
//
// Returns 0, or a negative errno: -EBUSY if another hold keeps earlier I/O from the device,
// -ETIMEDOUT if earlier I/O has not ended in time. After a failure the disk is not frozen.
int forebay_freeze(struct forebay_disk *disk, int timeout_ms, struct forebay_hold **hold);

// Quiesces a disk: once this returns, no more requests are passed to the device. Requests that the
// device already has end as usual. Stores a handle in *hold.
//
// Returns 0, or a negative errno.
int forebay_quiesce(struct forebay_disk *disk, struct forebay_hold **hold);

// Stops a disk: no more requests are passed to the device, except by threads that are already
// passing some. Never waits. Requests that the device already has end as usual. Stores a handle in
// *hold.
//
// Returns 0, or a negative errno.
int forebay_stop(struct forebay_disk *disk, struct forebay_hold **hold);

// Releases a hold. If it was the last one of its kind, the I/O that it held continues.
//
// Returns 0, or a negative errno: -EBADF if it is already released.
int forebay_release(struct forebay_hold *hold);

// Returns the number of properties, which every disk has. Properties are numbered from 0.
uint32_t forebay_info_count(void);

// Returns the name of a property, such as "capacity", or NULL if there is no such number.
const char *forebay_info_name(uint32_t index);

// Stores a property of a disk as text in buf, which has size bytes, with a zero byte at the end.
// A longer text is truncated. Numbers are decimal, and a flag is 1 or 0. The text is empty if the
// disk has no such value.
//
// Returns the length of the whole text without the zero byte, or a negative errno: -ENOENT if
// there is no such property.
int forebay_info(struct forebay_disk *disk, const char *name, char *buf, size_t size);

// Stores a property that is a number in *value: see forebay_info(). A flag is 1 or 0. Stores
// UINT64_MAX if the disk has no such value, such as the capacity of a file that grows.
//
// Returns 0, or a negative errno: -ENOENT if there is no such property, -EINVAL if it is a text.
int forebay_info_number(struct forebay_disk *disk, const char *name, uint64_t *value);

// Listens at path, a unix socket at which the command "forebay top PATH" shows all disks of this
// process while it runs. Its directory must be closed to other users. A thread of the library
// answers, and sleeps between requests. Another call replaces the socket. NULL closes it.
//
// Returns 0, or a negative errno: -ENOENT if the directory is missing, -EPERM if it is open to
// other users, -EADDRINUSE if another process listens there, -EEXIST if the path is no socket,
// -EAGAIN if another thread is in this call, or the errno of a failed system call. After a failure
// the former socket has ended.
int forebay_insight_listen(const char *path);

// Stores the counters of all open disks of this process and of their owners in buf, which has size
// bytes, as OpenMetrics text for Prometheus, with a zero byte at the end. Serve it with the
// content type "application/openmetrics-text; version=1.0.0; charset=utf-8". A longer text is
// truncated, and must not be served.
//
// Returns the length of the whole text without the zero byte, or a negative errno. The text may be
// longer at the next call, such as after another disk was opened: enlarge buf and call again until
// the result is below size.
int forebay_insight_openmetrics(char *buf, size_t size);

// Stores a line for each open disk of this process in buf, which has size bytes, in the format of
// /proc/diskstats (17 counters), with a zero byte at the end. The major number is 240, and the
// minor number is that of the disk in this process. A longer text is truncated.
//
// Returns the length of the whole text without the zero byte, or a negative errno. The text may be
// longer at the next call: see forebay_insight_openmetrics().
int forebay_insight_diskstats(char *buf, size_t size);

// Stores the requests that have exceeded their time limit (io_timeout_ms of the spec) since the
// last call, oldest first, at most max of them. The disk keeps the latest 256. Intended for logs.
//
// Returns the number of requests, or a negative errno. If it is max, there may be more.
int forebay_late_requests(struct forebay_disk *disk, struct forebay_late *late, uint32_t max);

// Opens the disk that a spec names: "disk.img?direct=on", "/dev/vdb", "nbd://host/name",
// "ram:64M". Stores a handle in *disk.
//
// Returns 0, or a negative errno: -EINVAL for a wrong spec, -ENOENT, -EACCES, -EBUSY if another
// program uses the image, or the errno of a failed system call.
int forebay_open(const char *spec, struct forebay_disk **disk);

// Opens a file or block device by its path, with nr options: keys that a spec accepts for files,
// such as direct or queue_depth, and the key driver: file (the default), aio or psync. No byte of
// the path has a special meaning. Stores a handle in *disk.
//
// Returns 0, or a negative errno as forebay_open() does.
int forebay_open_path(const char *path,
                      const struct forebay_option *options,
                      uint32_t nr,
                      struct forebay_disk **disk);

// Opens the file or block device that fd refers to, with options as for forebay_open_path(). The
// descriptor is duplicated: the caller still owns fd, and may close it. The disk opens the file
// again, with the flags that it needs. Stores a handle in *disk.
//
// Returns 0, or a negative errno as forebay_open() does: -EBADF if fd is not open, -EINVAL if a
// disk cannot use it.
int forebay_open_fd(int fd,
                    const struct forebay_option *options,
                    uint32_t nr,
                    struct forebay_disk **disk);

// Closes a handle of a disk. Calls that are using it end as usual; later calls fail. When these
// calls have ended and the queues of the disk are closed, the disk itself is closed, which waits
// for I/O in flight. It does not flush.
//
// Returns 0, or a negative errno: -EBADF if the handle is closed already.
int forebay_close(struct forebay_disk *disk);

// Returns the version of the library as text, such as "0.1.0".
const char *forebay_version(void);

// Opens a handle of the owner of I/O with this name. Adds the owner if the disk has none: without
// limits, and with a weight of 100. Stores a handle in *owner, which keeps the disk open.
//
// Returns 0, or a negative errno: -EEXIST if an owner below another one has this name.
int forebay_owner_open(struct forebay_disk *disk, const char *name, struct forebay_owner **owner);

// Opens a handle of the owner with this name below another one, as forebay_owner_open() does. Its
// I/O counts against the limits of both, and the children of an owner divide its share. There may
// be 8 levels.
//
// Returns 0, or a negative errno: -EEXIST if another owner has this name, -ENOENT if the parent
// was removed.
int forebay_owner_child(struct forebay_owner *parent,
                        const char *name,
                        struct forebay_owner **owner);

// Closes a handle of an owner. The owner stays, with its limits, until forebay_owner_remove(), or
// until the disk is closed.
//
// Returns 0, or a negative errno: -EBADF if the handle is closed already.
int forebay_owner_close(struct forebay_owner *owner);

// Removes an owner from its disk. I/O that waits for its limits goes on without any. Its number
// may become that of another owner. The handle stays open: close it.
//
// Returns 0, or a negative errno: -EBUSY if the owner has children, -ENOENT if it was removed
// before.
int forebay_owner_remove(struct forebay_owner *owner);

// Returns the number of an owner, at least 1, for the field owner of struct forebay_io, or a
// negative errno. It is valid on the disk of the owner, until the owner is removed. On other disks
// I/O with this number counts against another owner, or none.
int forebay_owner_number(struct forebay_owner *owner);

// Sets all limits of an owner. They apply together, beside those of the owners above. Keys are
// iops, bps, read_iops, read_bps, write_iops, write_bps (I/Os or bytes per second), each of these
// with _burst (I/Os or bytes that may start at once after a pause), and latency_target_us (a
// latency goal: while it is missed, siblings have fewer I/Os in flight). Values are numbers, such
// as "500" or "10m"; 0 is no limit. Limits that are not given are removed, so nr = 0 removes all.
//
// Returns 0, or a negative errno: -EINVAL for an unknown key, a wrong value, or a burst without
// its rate. After a failure the limits are unchanged.
int forebay_owner_set_limits(struct forebay_owner *owner,
                             const struct forebay_option *limits,
                             uint32_t nr);

// Stores the limit with a key in *value: see forebay_owner_set_limits(). 0: no limit. The default
// of a burst is stored as a number.
//
// Returns 0, or a negative errno: -EINVAL if there is no such key.
int forebay_owner_limit(struct forebay_owner *owner, const char *key, uint64_t *value);

// Sets the weight of an owner, 1 to 10000: its share among its siblings, while each has I/O that
// waits for a tag. The disk needs one hardware context (nr_hw_queues=1).
//
// Returns 0, or a negative errno.
int forebay_owner_set_weight(struct forebay_owner *owner, uint32_t weight);

// Returns the weight of an owner, or a negative errno.
int forebay_owner_weight(struct forebay_owner *owner);

// Returns the number of counters that each owner has. They are numbered from 0.
uint32_t forebay_owner_stats_count(void);

// Returns the name of a counter of owners, such as "limit_wait_ns", or NULL if there is no such
// number.
const char *forebay_owner_stats_name(uint32_t index);

// Returns the meaning of a counter of owners as a sentence, or NULL if there is no such number.
const char *forebay_owner_stats_help(uint32_t index);

// Stores the counter of an owner with a name in *value, without the I/O of its children.
// UINT64_MAX: no such value, such as a depth without a limit.
//
// Returns 0, or a negative errno: -ENOENT if there is no such counter.
int forebay_owner_stats_get(struct forebay_owner *owner, const char *name, uint64_t *value);

// Opens a plug on this thread: I/O that the thread submits on any disk waits, so that neighbours
// merge. It is issued when the outermost plug ends, a limit is reached, or the thread waits. Plugs
// nest; end each with forebay_unplug().
//
// Returns 0, or a negative errno.
int forebay_plug(void);

// Ends the innermost plug of this thread.
//
// Returns 0, or -EINVAL if the thread has no plug.
int forebay_unplug(void);

// Opens a queue on a disk for the calling thread. Stores a handle in *queue. Only this thread may
// use it: other threads get -EPERM.
//
// Returns 0, or a negative errno.
int forebay_queue_open(struct forebay_disk *disk, struct forebay_queue **queue);

// Closes a queue. If I/O is in flight, waits until it has ended, because the device uses its
// memory until then. Completions that were not reaped are lost.
//
// Returns 0, or a negative errno: -EPERM on a thread that has not opened it, and the queue stays
// open; -EBADF if it is closed already.
int forebay_queue_close(struct forebay_queue *queue);

// Submits nr I/Os, under one plug: neighbours merge. Never waits for the device. Inside of
// forebay_plug() they also merge with those of other calls, and are issued at forebay_unplug().
//
// Returns the number of I/Os that were accepted, or a negative errno if the first one is refused.
// If fewer than nr were accepted, the next one was refused: submit the rest to learn why. -EAGAIN:
// the queue is full (nr_bios of the spec). Reap, then submit the rest.
int forebay_queue_submit(struct forebay_queue *queue, const struct forebay_io *ios, uint32_t nr);

// Stores at most max completions in an array, oldest first. Waits until min I/Os of the queue have
// ended, or all of them have, or timeout_ms milliseconds have passed. 0: does not wait. Negative:
// waits without a limit. Everything that the thread has plugged is unplugged first, unless enough
// I/O has ended already.
//
// Returns the number of completions, or a negative errno. No completion is lost by a failure.
int forebay_queue_reap(struct forebay_queue *queue,
                       struct forebay_completion *completions,
                       uint32_t min,
                       uint32_t max,
                       int timeout_ms);

// Returns a descriptor for an event loop: when it is readable, call forebay_queue_reap() with
// timeout_ms 0, even if that gives nothing. It is readable at first. It belongs to the queue: do
// not close it.
//
// Returns the descriptor, or a negative errno.
int forebay_queue_fd(struct forebay_queue *queue);

// Registers len bytes of memory with the queue, so that the kernel need not look up their pages
// for each I/O. Keep the memory mapped until forebay_queue_unregister(), or until the queue is
// closed. If the disk supports this, its property registers_memory is 1.
//
// Returns the number of the registration, at least 1, or a negative errno: -EOPNOTSUPP if the disk
// does not support it, -ENOMEM if the limit on locked memory is too low.
int forebay_queue_register(struct forebay_queue *queue, void *buf, size_t len);

// Ends a registration of memory. The queue must have no I/O in flight.
//
// Returns 0, or a negative errno: -EBUSY if I/O of the queue was submitted and not reaped, -EINVAL
// if there is no such registration.
int forebay_queue_unregister(struct forebay_queue *queue, int registration);

// Returns the number of I/Os that were submitted and not reaped, or a negative errno.
int forebay_queue_len(struct forebay_queue *queue);

// Returns the operation of a request, one of enum forebay_op, or a negative errno.
int forebay_request_op(struct forebay_request *request);

// Returns the first byte of a request on the disk, or a negative errno; 0 for a flush.
int64_t forebay_request_offset(struct forebay_request *request);

// Returns the number of bytes of a request on the disk, or a negative errno; 0 for a flush.
int64_t forebay_request_len(struct forebay_request *request);

// Returns the flags of a request, or a negative errno: FOREBAY_IO_FUA for a write that must be
// durable when it ends, FOREBAY_IO_FSYNC for a flush that must make all metadata durable too.
int forebay_request_flags(struct forebay_request *request);

// Copies len bytes of a write to buf, starting at byte `at` of the request. buf must not overlap
// the memory of the request.
//
// Returns 0, or a negative errno: -EINVAL if the request is not a write or has too few bytes.
int forebay_request_copy_to(struct forebay_request *request, uint64_t at, void *buf, size_t len);

// Copies len bytes of buf to the memory of a read, starting at byte `at` of the request. buf must
// not overlap that memory.
//
// Returns 0, or a negative errno: -EINVAL if the request is not a read or has too few bytes.
int forebay_request_copy_from(struct forebay_request *request,
                              uint64_t at,
                              const void *buf,
                              size_t len);

// Ends a request, and closes its handle. result is the number of bytes that a read or write has
// moved, 0 for another operation that has succeeded, or a negative errno. If it is less than the
// length, the layer continues with the rest; a read of 0 bytes marks the end of the disk. Only
// whole logical blocks of a read count. A write that ends inside a block fails.
//
// Returns 0, or a negative errno: -EBADF if the request has already ended, -EINVAL if the result
// does not fit the request. After -EINVAL the request has not ended.
int forebay_request_end(struct forebay_request *request, int64_t result);

// Changes the scheduler of a disk in use, or its settings. Keys are scheduler, device_depth and
// the parameters of schedulers, as in specs. Settings that are not given stay. The disk is frozen
// meanwhile, as by forebay_freeze() with timeout_ms: I/O that it has admitted ends first.
//
// Returns 0, or a negative errno: -EINVAL for a wrong setting, or for a disk with several hardware
// contexts; those of forebay_freeze(). After a failure the disk has the scheduler that it had.
int forebay_set_scheduler(struct forebay_disk *disk,
                          const struct forebay_option *settings,
                          uint32_t nr,
                          int timeout_ms);

// Stores the present setting of the scheduler with a key, such as "scheduler", as text in buf,
// which has size bytes, with a zero byte at the end. A longer text is truncated. forebay_info()
// stores the setting that the disk was opened with.
//
// Returns the length of the whole text without the zero byte, or a negative errno: -ENOENT if
// there is no such setting of schedulers.
int forebay_scheduler(struct forebay_disk *disk, const char *key, char *buf, size_t size);

// Sets how many tags each hardware context of a disk in use may have in use: the setting
// nr_requests, 1 to queue_depth. A request takes a tag, then waits in the scheduler, if there is
// one, which lets device_depth requests to the device.
//
// Returns 0, or a negative errno.
int forebay_set_nr_requests(struct forebay_disk *disk, uint32_t nr_requests);

// Sets the measure in which weights of owners divide a disk in use. Keys are weight_by (bytes, ios
// or cost), cost_read_io_ns, cost_read_byte_ps, cost_write_io_ns and cost_write_byte_ps, as in
// specs. Settings that are not given stay. I/O that was started before does not count for the
// shares.
//
// Returns 0, or a negative errno.
int forebay_set_weight_by(struct forebay_disk *disk,
                          const struct forebay_option *settings,
                          uint32_t nr);

// Returns the number of counters. Counters are numbered from 0.
uint32_t forebay_stats_count(void);

// Returns the name of a counter, such as "issued", or NULL if there is no such number. Names that
// end in _ns are nanoseconds.
const char *forebay_stats_name(uint32_t index);

// Returns the meaning of a counter as a sentence, or NULL if there is no such number.
const char *forebay_stats_help(uint32_t index);

// Stores the counter with a name in *value. Counters count since the disk was opened.
//
// Returns 0, or a negative errno: -ENOENT if there is no such counter.
int forebay_stats_get(struct forebay_disk *disk, const char *name, uint64_t *value);

// Stores the first nr counters in an array, in the order of their numbers.
//
// Returns how many were stored, or a negative errno.
int forebay_stats_read(struct forebay_disk *disk, uint64_t *values, uint32_t nr);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FOREBAY_H */
