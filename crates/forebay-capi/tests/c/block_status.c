/* Extents of a file with a hole, and of memory. */
#define _GNU_SOURCE
#include "check.h"

#include <unistd.h>

int main(int argc, char **argv)
{
    enum { BLOCK = 4096, LEN = 16 * BLOCK };
    char path[512], data[BLOCK];
    struct forebay_extent extents[4];
    struct forebay_disk *disk = open_disk("ram:64k");

    CHECK(argc == 2);
    CHECK(forebay_block_status(disk, BLOCK, 2 * BLOCK, extents, 4) == 1);
    CHECK(extents[0].len == 2 * BLOCK && extents[0].kind == FOREBAY_EXTENT_KIND_DATA);
    /* At the end of the disk, and beyond. */
    CHECK(forebay_block_status(disk, 65536 - 512, BLOCK, extents, 4) == 1);
    CHECK(extents[0].len == 512 && extents[0].reserved == 0);
    CHECK(forebay_block_status(disk, 65536, BLOCK, extents, 4) == 0);
    CHECK_FAILS(forebay_block_status(NULL, 0, BLOCK, extents, 4), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_block_status(disk, 0, BLOCK, NULL, 4), EINVAL, "array of extents");
    CHECK_FAILS(forebay_block_status(disk, 0, BLOCK, extents, 0), EINVAL, "array of extents");
    CHECK(forebay_close(disk) == 0);

    /* Data in the second block, and holes around it. */
    snprintf(path, sizeof path, "%s/disk.img", argv[1]);
    FILE *file = fopen(path, "w");
    memset(data, 7, sizeof data);
    CHECK(file != NULL && pwrite(fileno(file), data, BLOCK, BLOCK) == BLOCK);
    CHECK(ftruncate(fileno(file), LEN) == 0 && fclose(file) == 0);
    snprintf(path, sizeof path, "psync:%s/disk.img", argv[1]);
    disk = open_disk(path);
    uint64_t sum = 0;
    int nr = forebay_block_status(disk, 0, LEN, extents, 4);
    /* A file system may have no holes. */
    CHECK(nr >= 1 && nr <= 3);
    for (int n = 0; n < nr; n++)
        sum += extents[n].len;
    CHECK(sum == LEN);
    if (nr == 3)
        CHECK(extents[0].kind != FOREBAY_EXTENT_KIND_DATA &&
              extents[1].kind == FOREBAY_EXTENT_KIND_DATA);
    /* At most as many as there is room for. */
    CHECK(forebay_block_status(disk, 0, LEN, extents, 1) == 1);
    CHECK(forebay_close(disk) == 0);
    return 0;
}
