/* Blocking calls move data, and report short counts and failures. */
#include "check.h"

int main(void)
{
    struct forebay_disk *disk = open_disk("ram:1M");
    static char out[8192], in[8192];
    uint64_t capacity = 0;

    CHECK(forebay_capacity(disk, &capacity) == 0 && capacity == 1 << 20);
    memset(out, 7, sizeof out);
    CHECK(forebay_write(disk, out, sizeof out, 4096) == sizeof out);
    CHECK(forebay_read(disk, in, sizeof in, 4096) == sizeof in);
    CHECK(memcmp(in, out, sizeof in) == 0);
    CHECK(forebay_write_durable(disk, out, 512, 0) == 512);
    CHECK(forebay_flush(disk) == 0);
    CHECK(forebay_fsync(disk) == 0);

    struct iovec iov[3] = {{in, 512}, {NULL, 0}, {in + 4096, 1024}};
    memset(in, 0, sizeof in);
    CHECK(forebay_readv(disk, iov, 3, 4096) == 1536);
    CHECK(in[511] == 7 && in[512] == 0 && in[4096] == 7 && in[5119] == 7 && in[5120] == 0);
    out[0] = 1;
    struct iovec parts[2] = {{out, 512}, {out, 512}};
    CHECK(forebay_writev(disk, parts, 2, 65536) == 1024);
    CHECK(forebay_read(disk, in, 1024, 65536) == 1024);
    CHECK(in[0] == 1 && in[1] == 7 && in[512] == 1 && in[1023] == 7);

    CHECK(forebay_write_zeroes(disk, 4096, 4096) == 0);
    CHECK(forebay_read(disk, in, 8192, 4096) == 8192);
    CHECK(in[0] == 0 && in[4095] == 0 && in[4096] == 7);
    CHECK(forebay_discard(disk, 0, 4096) == 0);
    CHECK(forebay_grow(disk) == 0);
    CHECK(forebay_read(disk, NULL, 0, 0) == 0);
    CHECK(forebay_readv(disk, NULL, 0, 0) == 0);

    CHECK_FAILS(forebay_read(disk, in, 512, 1 << 20), ENXIO, "out of range");
    CHECK_FAILS(forebay_write(disk, in, 100, 0), EINVAL, "misaligned");
    CHECK(forebay_close(disk) == 0);
    return 0;
}
