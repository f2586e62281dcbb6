/* Serves a file some of whose blocks fail, by the kernel's FUSE protocol. Needs root on Linux.
 *
 * The file is mounted on a file. Its reads, writes and syncs fail by the number of the block, so
 * every run has the same results. The argument selects how much fails with a bad block:
 *
 * - `parts`: the kernel makes one request for each block, one after the other, and ends an iocb at
 *   the first one that is not complete. So iocbs are short.
 * - `whole`: the kernel makes one request for each block, all at once. An iocb with a bad block
 *   fails, but its good blocks are written.
 * - `device`: the kernel makes requests of many blocks. One with a bad block fails, and nothing of
 *   it is written. A loop device on this file fails as a disk does. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BLOCK = 4096, NR_BLOCKS = 160, FILE_LEN = NR_BLOCKS * BLOCK, REQUEST_MAX = 1 << 20 };

static char data[FILE_LEN];
static char request[REQUEST_MAX + BLOCK];
static int fd, nr_syncs, is_device, is_async;

/* Errors that a block device reports too. */
static const int errors[] = { EIO, ENOSPC, ENODATA, EREMOTEIO, ETIMEDOUT };

static int error_of(uint64_t block)
{
    return errors[block / 8 % (sizeof errors / sizeof errors[0])];
}

/* Returns the number of bytes of a block before the first one that fails. */
static uint32_t good_bytes(uint64_t block, int writes)
{
    if (block % 8 == (writes ? 3 : 6) || block % 24 == 12)
        return 0;
    if (is_device)
        return BLOCK;
    return block % 40 == 21 ? 512 : block % 40 == 37 ? 1000 : BLOCK;
}

/* Returns how much of a range can be read or written, or a negative errno if it is none. */
static int64_t range(uint64_t offset, uint32_t len, int writes)
{
    int64_t done = 0;

    if (offset >= FILE_LEN)
        return 0;
    if (len > FILE_LEN - offset)
        len = (uint32_t)(FILE_LEN - offset);
    while (done < len) {
        uint64_t at = offset + (uint64_t)done, block = at / BLOCK;
        uint32_t inside = (uint32_t)(at % BLOCK), left = len - (uint32_t)done;
        uint32_t good = good_bytes(block, writes);
        uint32_t wanted = left < BLOCK - inside ? left : BLOCK - inside;
        uint32_t part = good <= inside ? 0 : good - inside < wanted ? good - inside : wanted;

        done += part;
        if (part < wanted)
            return is_device || done == 0 ? -error_of(block) : done;
    }
    return done;
}

/* Sends an answer. */
static void answer(uint64_t unique, int error, const void *body, size_t len)
{
    struct fuse_out_header head = { .error = -error, .unique = unique };
    struct iovec parts[2] = { { &head, sizeof head }, { (void *)(uintptr_t)body, len } };

    head.len = (uint32_t)(sizeof head + len);
    /* A request that the program has cancelled needs no answer. */
    if (writev(fd, parts, 2) < 0 && errno != ENOENT)
        exit(5);
}

static void init(uint64_t unique, const struct fuse_init_in *asked)
{
    struct fuse_init_out own = {
        .major = FUSE_KERNEL_VERSION,
        .minor = FUSE_KERNEL_MINOR_VERSION,
        .max_readahead = asked->max_readahead,
        .flags = FUSE_BIG_WRITES | FUSE_MAX_PAGES | (is_async ? FUSE_ASYNC_DIO : 0),
        .max_background = 256,
        .congestion_threshold = 256,
        .max_write = is_device ? REQUEST_MAX : BLOCK,
        .max_pages = is_device ? REQUEST_MAX / BLOCK : 1,
    };
    answer(unique, 0, &own, sizeof own);
}

static void attributes(uint64_t unique)
{
    struct fuse_attr_out own = { .attr_valid = 3600 };

    own.attr.ino = FUSE_ROOT_ID;
    own.attr.size = FILE_LEN;
    own.attr.blocks = FILE_LEN / 512;
    own.attr.blksize = BLOCK;
    own.attr.mode = S_IFREG | 0600;
    own.attr.nlink = 1;
    answer(unique, 0, &own, sizeof own);
}

static void read_data(uint64_t unique, const struct fuse_read_in *asked)
{
    int64_t len = range(asked->offset, asked->size, 0);

    if (len < 0)
        answer(unique, (int)-len, NULL, 0);
    else
        answer(unique, 0, data + (asked->offset < FILE_LEN ? asked->offset : 0), (size_t)len);
}

static void write_data(uint64_t unique, const struct fuse_write_in *asked)
{
    int64_t len = range(asked->offset, asked->size, 1);
    struct fuse_write_out own = { .size = (uint32_t)(len > 0 ? len : 0) };

    if (len < 0) {
        answer(unique, (int)-len, NULL, 0);
        return;
    }
    memcpy(data + asked->offset, asked + 1, (size_t)len);
    answer(unique, 0, &own, sizeof own);
}

static void serve(const struct fuse_in_header *head)
{
    const void *body = head + 1;
    struct fuse_open_out opened = { .open_flags = FOPEN_DIRECT_IO };

    switch (head->opcode) {
    case FUSE_INIT:
        init(head->unique, body);
        break;
    case FUSE_GETATTR:
        attributes(head->unique);
        break;
    case FUSE_OPEN:
        answer(head->unique, 0, &opened, sizeof opened);
        break;
    case FUSE_READ:
        read_data(head->unique, body);
        break;
    case FUSE_WRITE:
        write_data(head->unique, body);
        break;
    case FUSE_FSYNC:
        /* Each third sync fails. */
        answer(head->unique, ++nr_syncs % 3 == 0 ? EIO : 0, NULL, 0);
        break;
    case FUSE_RELEASE:
    case FUSE_FLUSH:
        answer(head->unique, 0, NULL, 0);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break;
    default:
        answer(head->unique, ENOSYS, NULL, 0);
    }
}

int main(int argc, char **argv)
{
    char options[128];

    if (argc != 3)
        return 2;
    is_device = strcmp(argv[2], "device") == 0;
    is_async = strcmp(argv[2], "parts") != 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof options, "fd=%d,rootmode=%o,user_id=%u,group_id=%u%s", fd,
             S_IFREG | 0600, getuid(), getgid(), is_device ? "" : ",max_read=4096");
    if (fd < 0 || mount("forebay", argv[1], "fuse", MS_NOSUID | MS_NODEV, options) != 0) {
        fprintf(stderr, "%s: %s\n", fd < 0 ? "/dev/fuse" : "mount", strerror(errno));
        return 4;
    }
    printf("mounted\n");
    fflush(stdout);
    for (;;) {
        ssize_t len = read(fd, request, sizeof request);

        if (len < 0 && errno == ENODEV)
            return 0; /* It is unmounted. */
        if (len < 0 && errno != EINTR && errno != ENOENT && errno != EAGAIN)
            return 6;
        if (len >= (ssize_t)sizeof(struct fuse_in_header))
            serve((const struct fuse_in_header *)(const void *)request);
    }
}
