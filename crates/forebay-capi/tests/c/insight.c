/* The socket at which the disks of a program are shown, and their counters as text. */
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

/* Returns a text of the library, in memory of its own. */
static char *text_by(int (*store)(char *, size_t))
{
    int length = store(NULL, 0);
    size_t size = (size_t)length + 1;
    char *text = malloc(size), *cut = malloc(size);

    CHECK(length >= 0 && text != NULL && cut != NULL);
    /* No disk is opened or used meanwhile, so the length stays the same. */
    CHECK(store(text, size) == length && strlen(text) == (size_t)length);
    if (length > 0) {
        CHECK(store(cut, (size_t)length) == length && strlen(cut) == (size_t)length - 1);
        CHECK(strncmp(cut, text, (size_t)length - 1) == 0);
    }
    free(cut);
    return text;
}

/* Checks both texts while one disk is open, with one write of 512 bytes. */
static void check_texts(void)
{
    char *text = text_by(forebay_insight_openmetrics);
    unsigned int major = 0, minor = 0;
    unsigned long long n[17];

    CHECK(strstr(text, "forebay_disk_written_bytes_total{device=\"ram:1M\"} 512\n") != NULL);
    CHECK(strcmp(text + strlen(text) - 6, "# EOF\n") == 0);
    free(text);

    text = text_by(forebay_insight_diskstats);
    CHECK(strchr(text, '\n') == text + strlen(text) - 1);
    CHECK(sscanf(text,
                 "%u %u ram:1M %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu "
                 "%llu %llu %llu %llu",
                 &major, &minor, n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7, n + 8, n + 9,
                 n + 10, n + 11, n + 12, n + 13, n + 14, n + 15, n + 16) == 19);
    CHECK(major == 240 && minor > 0);
    /* Writes, and their sectors. */
    CHECK(n[0] == 0 && n[4] == 1 && n[6] == 1);
    free(text);
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
    check_texts();
    CHECK(forebay_close(disk) == 0);
    CHECK(strstr(ask(path), "\"disks\":[]") != NULL);
    CHECK(forebay_insight_diskstats(NULL, 0) == 0);

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
