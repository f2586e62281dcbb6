/* A thousand disks and queues, opened and closed, leave no descriptor behind. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>

static int nr_descriptors(void)
{
    DIR *fds = opendir("/proc/self/fd");
    int nr = 0;

    CHECK(fds != NULL);
    while (readdir(fds) != NULL)
        nr++;
    closedir(fds);
    return nr;
}

int main(void)
{
    int before = 0;

    for (int n = 0; n < 1000; n++) {
        struct forebay_disk *disk = open_disk("ram:64k");
        struct forebay_queue *queue = open_queue(disk);

        CHECK(forebay_queue_fd(queue) >= 0);
        CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
        if (n == 0)
            before = nr_descriptors();
    }
    CHECK(nr_descriptors() <= before);
    return 0;
}
