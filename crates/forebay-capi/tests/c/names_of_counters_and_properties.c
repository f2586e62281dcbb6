/* Counters and properties by name. */
#include "check.h"

int main(void)
{
    struct forebay_disk *disk = open_disk("ram:1M?nr_requests=8");
    uint32_t nr = forebay_stats_count();
    uint64_t *values = calloc(nr, sizeof *values);
    uint64_t number = 0;
    char text[64], *features;

    memset(text, 0, sizeof text);
    for (int n = 0; n < 3; n++)
        CHECK(forebay_read(disk, text, 0, 0) == 0);
    static char memory[1024];
    CHECK(forebay_read(disk, memory, 1024, 0) == 1024);
    CHECK(nr > 40 && forebay_stats_read(disk, values, nr) == (int)nr);
    CHECK(forebay_stats_read(disk, values, 3) == 3);
    for (uint32_t n = 0; n < nr; n++) {
        CHECK(strlen(forebay_stats_name(n)) > 2 && strlen(forebay_stats_help(n)) > 10);
        CHECK(counter(disk, forebay_stats_name(n)) == values[n]);
    }
    CHECK(counter(disk, "read_bytes") == 1024 && counter(disk, "issued") >= 1);
    CHECK(forebay_stats_name(nr) == NULL && forebay_stats_help(UINT32_MAX) == NULL);
    CHECK(strstr(forebay_last_error(), "no counter 4294967295") != NULL);
    CHECK_FAILS(forebay_stats_get(disk, "isued", &number), ENOENT, "`isued`");
    free(values);

    nr = forebay_info_count();
    CHECK(nr > 50);
    for (uint32_t n = 0, has_capacity = 0; n < nr; n++) {
        CHECK(forebay_info(disk, forebay_info_name(n), text, sizeof text) >= 0);
        has_capacity += strcmp(forebay_info_name(n), "capacity") == 0;
        CHECK(n + 1 < nr || has_capacity == 1);
    }
    CHECK(forebay_info_name(nr) == NULL && strstr(forebay_last_error(), "no property") != NULL);
    CHECK(forebay_info(disk, "driver", text, sizeof text) == 3 && strcmp(text, "ram") == 0);
    CHECK(forebay_info(disk, "driver", text, 3) == 3 && strcmp(text, "ra") == 0);
    CHECK(forebay_info(disk, "driver", NULL, 0) == 3);
    CHECK(forebay_info(disk, "capacity", text, sizeof text) == 7);
    CHECK(strcmp(text, "1048576") == 0);
    CHECK(forebay_info_number(disk, "capacity", &number) == 0 && number == 1 << 20);
    CHECK(forebay_info_number(disk, "logical_block_size", &number) == 0 && number == 512);
    CHECK(forebay_info_number(disk, "read_only", &number) == 0 && number == 0);
    CHECK(forebay_info_number(disk, "failed", &number) == 0 && number == 0);
    /* Settings have the names of their keys. */
    CHECK(forebay_info_number(disk, "nr_requests", &number) == 0 && number == 8);
    CHECK(forebay_info(disk, "plug", text, sizeof text) > 0);
    CHECK(forebay_info_number(disk, "iostats", &number) == 0 && number == 1);
    CHECK(forebay_info(disk, "iostats", text, sizeof text) == 1 && strcmp(text, "1") == 0);
    CHECK(forebay_info_number(disk, "service", &number) == 0 && number == 0);
    CHECK(forebay_info_number(disk, "max_segments", &number) == 0 && number > 0);
    /* A value that this disk does not have. */
    CHECK(forebay_info(disk, "lock", text, sizeof text) == 0 && text[0] == 0);
    CHECK(forebay_info(disk, "failure", text, sizeof text) == 0 && text[0] == 0);
    CHECK(forebay_info_number(disk, "tag_set", &number) == 0 && number == UINT64_MAX);
    CHECK_FAILS(forebay_info_number(disk, "driver", &number), EINVAL, "driver is a text, `ram`");
    CHECK_FAILS(forebay_info(disk, "colour", text, 1), ENOENT, "`colour`");
    int length = forebay_info(disk, "features", NULL, 0);
    CHECK(length > 10);
    features = malloc((size_t)length + 1);
    CHECK(forebay_info(disk, "features", features, (size_t)length + 1) == length);
    CHECK(strlen(features) == (size_t)length && strstr(features, ": no: ") != NULL);
    free(features);
    CHECK(forebay_close(disk) == 0);
    return 0;
}
