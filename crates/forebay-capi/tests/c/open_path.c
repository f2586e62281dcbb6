/* Paths with characters that have a meaning in specs, and options. */
#define _GNU_SOURCE
#include "check.h"

#include <unistd.h>

int main(int argc, char **argv)
{
    static const char *const names[] = {"plain", "why?x=1&y=2", "50%3F",        "%25",
                                        "a:b",   "ram:1M",      "no \xff UTF-8"};
    const struct forebay_option options[] = {
        {.key = "nr_requests", .value = "8"},
        {.key = "read_only", .value = "on"},
    };
    const struct forebay_option driver = {.key = "driver", .value = "psync"};
    const struct forebay_option unknown = {.key = "colour", .value = "red"};
    const struct forebay_option no_value = {.key = "read_only", .value = NULL};
    struct forebay_disk *disk = NULL;
    char path[512], block[512];
    uint64_t number = 0;

    CHECK(argc == 2);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        snprintf(path, sizeof path, "%s/%s", argv[1], names[n]);
        FILE *file = fopen(path, "w");
        CHECK(file != NULL && ftruncate(fileno(file), 1 << 16) == 0 && fclose(file) == 0);
        CHECK(forebay_open_path(path, NULL, 0, &disk) == 0);
        CHECK(forebay_capacity(disk, &number) == 0 && number == 1 << 16);
        CHECK(forebay_close(disk) == 0);
    }
    CHECK(forebay_open_path(path, options, 2, &disk) == 0);
    CHECK(forebay_info_number(disk, "nr_requests", &number) == 0 && number == 8);
    CHECK_FAILS(forebay_write(disk, block, 512, 0), EROFS, "read-only");
    CHECK(forebay_close(disk) == 0);

    CHECK(forebay_open_path(path, &driver, 1, &disk) == 0);
    CHECK(forebay_info(disk, "driver", block, sizeof block) == 5 && strcmp(block, "psync") == 0);
    CHECK(forebay_close(disk) == 0);

    disk = NULL;
    CHECK_FAILS(forebay_open_path(NULL, NULL, 0, &disk), EINVAL, "path is NULL");
    CHECK_FAILS(forebay_open_path("", NULL, 0, &disk), EINVAL, "path is empty");
    CHECK_FAILS(forebay_open_path(path, NULL, 1, &disk), EINVAL, "array of options");
    CHECK_FAILS(forebay_open_path(path, NULL, 0, NULL), EINVAL, "result is NULL");
    CHECK_FAILS(forebay_open_path(path, &unknown, 1, &disk), EINVAL, "colour");
    CHECK_FAILS(forebay_open_path(path, &no_value, 1, &disk), EINVAL, "value of an option is NULL");
    CHECK_FAILS(forebay_open_path("/no/such/file", NULL, 0, &disk), ENOENT, "/no/such/file");
    CHECK(disk == NULL);
    return 0;
}
