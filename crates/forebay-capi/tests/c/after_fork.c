/* A child of a fork cannot use a disk of its parent, and neither waits for ever. */
#define _GNU_SOURCE
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    struct forebay_disk *disk = open_disk("ram:1M");
    struct forebay_queue *queue = open_queue(disk);
    static char memory[512];
    struct forebay_io io = read_of(memory, 512, 0, 1);
    struct forebay_completion done[1];
    int status = 0;
    FILE *file = tmpfile();

    CHECK(file != NULL);
    struct forebay_group_commit *commit = NULL;
    CHECK(forebay_commit_open(fileno(file), FOREBAY_SYNC_DATA, &commit) == 0);
    struct forebay_owner *owner = NULL, *other = NULL;
    CHECK(forebay_owner_open(disk, "tenant", &owner) == 0);
    CHECK(forebay_queue_submit(queue, &io, 1) == 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(20);
        CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "after the fork");
        CHECK_FAILS(forebay_read(disk, memory, 512, 0), EINVAL, "after the fork");
        CHECK_FAILS(forebay_queue_fd(queue), EINVAL, "after the fork");
        CHECK_FAILS(forebay_grow(disk), EINVAL, "after the fork");
        CHECK_FAILS(forebay_commit(commit), EINVAL, "after the fork");
        CHECK_FAILS(forebay_owner_open(disk, "tenant", &other), EINVAL, "after the fork");
        CHECK_FAILS(forebay_owner_child(owner, "job", &other), EINVAL, "after the fork");
        CHECK_FAILS(forebay_owner_set_limits(owner, NULL, 0), EINVAL, "after the fork");
        CHECK_FAILS(forebay_owner_remove(owner), EINVAL, "after the fork");
        CHECK_FAILS(forebay_set_nr_requests(disk, 8), EINVAL, "after the fork");
        CHECK_FAILS(forebay_set_scheduler(disk, NULL, 0, -1), EINVAL, "after the fork");
        CHECK(forebay_owner_close(owner) == 0);
        CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
        disk = open_disk("ram:1M");
        CHECK(forebay_read(disk, memory, 512, 0) == 512);
        CHECK(forebay_close(disk) == 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(forebay_queue_reap(queue, done, 1, 1, -1) == 1 && done[0].result == 512);
    CHECK(forebay_owner_close(owner) == 0);
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
    CHECK(forebay_commit_close(commit) == 0 && fclose(file) == 0);
    return 0;
}
