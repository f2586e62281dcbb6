/* Disks of descriptors, which stay those of the program. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const struct forebay_option options[] = {
        {.key = "driver", .value = "psync"},
        {.key = "nr_requests", .value = "8"},
    };
    const struct forebay_option unknown = {.key = "driver", .value = "ram"};
    struct forebay_disk *disk = NULL;
    char path[512], block[512] = "hello", back[512];
    uint64_t number = 0;

    CHECK(argc == 2);
    snprintf(path, sizeof path, "%s/disk", argv[1]);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 1 << 16) == 0 && unlink(path) == 0);
    CHECK(forebay_open_fd(fd, options, 2, &disk) == 0);
    CHECK(forebay_info(disk, "driver", back, sizeof back) == 5 && strcmp(back, "psync") == 0);
    CHECK(forebay_info_number(disk, "nr_requests", &number) == 0 && number == 8);
    CHECK(forebay_write(disk, block, 512, 512) == 512);
    CHECK(pread(fd, back, 512, 512) == 512 && memcmp(block, back, 512) == 0);
    CHECK(forebay_close(disk) == 0);
    CHECK(fcntl(fd, F_GETFD) >= 0);

    disk = NULL;
    CHECK_FAILS(forebay_open_fd(fd, &unknown, 1, &disk), EINVAL, "ram");
    CHECK_FAILS(forebay_open_fd(fd, NULL, 1, &disk), EINVAL, "array of options");
    CHECK_FAILS(forebay_open_fd(fd, NULL, 0, NULL), EINVAL, "result is NULL");
    CHECK_FAILS(forebay_open_fd(-1, NULL, 0, &disk), EBADF, "descriptor -1");
    CHECK(close(fd) == 0);
    CHECK_FAILS(forebay_open_fd(fd, NULL, 0, &disk), EBADF, "the descriptor");
    int fds[2];
    CHECK(pipe(fds) == 0);
    CHECK(forebay_open_fd(fds[0], NULL, 0, &disk) < 0);
    CHECK(disk == NULL);
    return 0;
}
