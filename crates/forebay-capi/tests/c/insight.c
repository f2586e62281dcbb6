/* The socket at which the disks of a program are shown. */
#define _GNU_SOURCE
#include "check.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char answer[1 << 16];

/* Returns the answer at a socket, or NULL if nothing listens there. */
static const char *ask(const char *path)
{
    static const char request[] = "{\"command\":\"stats\"}\n";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = 0;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    CHECK(fd >= 0 && strlen(path) < sizeof address.sun_path);
    strcpy(address.sun_path, path);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return NULL;
    }
    CHECK(write(fd, request, sizeof request - 1) == sizeof request - 1);
    do {
        ssize_t got = read(fd, answer + len, sizeof answer - 1 - len);
        CHECK(got > 0);
        len += (size_t)got;
        answer[len] = 0;
    } while (strchr(answer, '\n') == NULL);
    close(fd);
    return answer;
}

int main(int argc, char **argv)
{
    char path[512], other[512], block[512] = {0};
    int status = 0;

    CHECK(argc == 2);
    snprintf(path, sizeof path, "%s/insight", argv[1]);
    snprintf(other, sizeof other, "%s/none/insight", argv[1]);
    CHECK_FAILS(forebay_insight_listen(other), ENOENT, "create it with `mkdir -m 700");
    CHECK(chmod(argv[1], 0755) == 0);
    CHECK_FAILS(forebay_insight_listen(path), EPERM, "is open to other users");
    CHECK(chmod(argv[1], 0700) == 0);
    CHECK(forebay_insight_listen(path) == 0);

    struct forebay_disk *disk = open_disk("ram:1M");
    CHECK(forebay_write(disk, block, sizeof block, 0) == 512);
    CHECK(strstr(ask(path), "\"spec\":\"ram:1M\"") != NULL);
    CHECK(strstr(answer, "\"write_bytes\":512") != NULL);
    CHECK(forebay_close(disk) == 0);
    CHECK(strstr(ask(path), "\"disks\":[]") != NULL);

    /* A child has no such thread. Its exit and its own socket leave that of the parent alone. */
    snprintf(other, sizeof other, "%s/child", argv[1]);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(forebay_insight_listen(other) == 0);
        CHECK(ask(other) != NULL);
        CHECK(forebay_insight_listen(NULL) == 0);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(ask(path) != NULL && ask(other) == NULL);

    CHECK(forebay_insight_listen(other) == 0);
    CHECK(ask(path) == NULL && ask(other) != NULL);
    CHECK(forebay_insight_listen(NULL) == 0);
    CHECK(ask(other) == NULL && access(other, F_OK) != 0);
    CHECK(forebay_insight_listen(NULL) == 0);
    return 0;
}
