/* Threads that append to a log share its syncs. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { THREADS = 4, COMMITS = 10 };

static struct forebay_group_commit *commit;
static int fd;

static void *append(void *unused)
{
    char line[64] = {0};

    for (int n = 0; n < COMMITS; n++) {
        uint64_t point = 0;
        CHECK(forebay_commit_point(commit, &point) == 0);
        CHECK(write(fd, line, sizeof line) == sizeof line);
        CHECK(forebay_commit_since(commit, point) == 0);
    }
    return unused;
}

int main(int argc, char **argv)
{
    char path[4096];
    pthread_t threads[THREADS];
    uint64_t commits = 0, syncs = 0, losses = 1;

    CHECK(argc == 2);
    snprintf(path, sizeof path, "%s/log", argv[1]);
    fd = open(path, O_CREAT | O_WRONLY | O_APPEND, 0600);
    CHECK(fd >= 0);
    CHECK(forebay_commit_open(fd, FOREBAY_SYNC_ALL, &commit) == 0);
    for (int n = 0; n < THREADS; n++)
        CHECK(pthread_create(&threads[n], NULL, append, NULL) == 0);
    for (int n = 0; n < THREADS; n++)
        CHECK(pthread_join(threads[n], NULL) == 0);
    CHECK(forebay_commit(commit) == 0);
    CHECK(forebay_commit_stats(commit, &commits, &syncs, &losses) == 0);
    CHECK(commits == THREADS * COMMITS + 1 && syncs >= 2 && syncs <= commits && losses == 0);
    CHECK(forebay_commit_stats(commit, NULL, NULL, NULL) == 0);
    CHECK(forebay_commit_acknowledge_loss(commit) == 0);
    CHECK(forebay_commit_close(commit) == 0);
    CHECK_FAILS(forebay_commit(commit), EBADF, "the group commit is closed");
    CHECK(close(fd) == 0);

    /* A descriptor that cannot be synced: the failure stays until it is acknowledged. */
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    CHECK(forebay_commit_open(pipes[1], FOREBAY_SYNC_DATA, &commit) == 0);
    CHECK_FAILS(forebay_commit(commit), EINVAL, "a sync failed");
    CHECK(forebay_commit_acknowledge_loss(commit) == 1);
    CHECK(forebay_commit_close(commit) == 0);
    CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
    return 0;
}
