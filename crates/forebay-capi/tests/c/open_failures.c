/* A disk that cannot be opened: the errno and the text say why. */
#include "check.h"

int main(int argc, char **argv)
{
    struct forebay_disk *disk = NULL;
    char path[4096];

    CHECK(argc == 2);
    CHECK(strcmp(forebay_last_error(), "") == 0);
    CHECK(strchr(forebay_version(), '.') != NULL);
    CHECK_FAILS(forebay_open("", &disk), EINVAL, "empty device spec");
    CHECK_FAILS(forebay_open("ram:1M?colour=red", &disk), EINVAL, "unknown key `colour`");
    CHECK_FAILS(forebay_open("ram:\xff", &disk), EINVAL, "not UTF-8");
    snprintf(path, sizeof path, "%s/missing.img", argv[1]);
    CHECK_FAILS(forebay_open(path, &disk), ENOENT, "missing.img: no such file");
    CHECK_FAILS(forebay_open("/dev/null", &disk), ENOTBLK, "not a regular file");
    CHECK(disk == NULL);
    return 0;
}
