/* fsync and fdatasync: by threads, with wrong arguments, in handlers of signals, with cancellation,
 * after a fork, and on a number that is another file meanwhile. */
#include "batch.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/time.h>

enum { NR_THREADS = 8, NR_SYNCS = 40 };

static int fd;
static volatile int is_over;
static volatile sig_atomic_t nr_handled;
static sigjmp_buf before;

/* Writes neighbours by the layer, which counts the syncs of a process that uses it. */
static void write_batch(void)
{
    void *context = NULL;
    struct batch *batch = batch_of(PWRITE, fd, 0, NR_MAX, 1);

    MUST(io_setup(NR_MAX, &context) == 0);
    MUST(io_submit(context, NR_MAX, batch->list) == NR_MAX && reap(context, NR_MAX) == 0);
    MUST(io_destroy(context) == 0);
    batch_free(batch);
}

/* Writes and syncs. Returns the number of syncs that have failed. */
static void *write_and_sync(void *argument)
{
    long nth = (long)argument, nr_failed = 0;
    char block[512];

    memset(block, 'a' + (int)nth, sizeof(block));
    for (int n = 0; n < NR_SYNCS; n++) {
        MUST(pwrite(fd, block, sizeof(block), (nth * NR_SYNCS + n) * 512) == 512);
        nr_failed += (n % 2 ? fsync(fd) : fdatasync(fd)) != 0;
    }
    return (void *)nr_failed;
}

static long run_threads(void)
{
    pthread_t threads[NR_THREADS];
    long nr_failed = 0;

    for (long n = 0; n < NR_THREADS; n++)
        MUST(pthread_create(&threads[n], NULL, write_and_sync, (void *)n) == 0);
    for (int n = 0; n < NR_THREADS; n++) {
        void *result;
        MUST(pthread_join(threads[n], &result) == 0);
        nr_failed += (long)result;
    }
    return nr_failed;
}

static void show_call(const char *what, int result)
{
    printf("%s: %d %s\n", what, result, result ? strerror(errno) : "");
}

static void wrong_arguments(const char *path)
{
    int ends[2], closed = dup(fd), reading = open(path, O_RDONLY), folder = open(".", O_RDONLY);
    int device = open("/dev/null", O_RDWR);

    MUST(pipe(ends) == 0 && close(closed) == 0 && reading >= 0 && folder >= 0 && device >= 0);
    show_call("fsync(-1)", fsync(-1));
    show_call("fdatasync(-1)", fdatasync(-1));
    show_call("a large number", fsync(1 << 30));
    show_call("a closed one", fsync(closed));
    show_call("a pipe", fsync(ends[0]));
    show_call("fdatasync of a pipe", fdatasync(ends[1]));
    show_call("a device", fsync(device));
    show_call("a file that is open for reading", fsync(reading));
    show_call("a folder", fsync(folder));
    errno = EDOM;
    MUST(fsync(fd) == 0 && fdatasync(fd) == 0);
    printf("errno afterwards: %s\n", errno == EDOM ? "as before" : "changed");
    close(ends[0]), close(ends[1]), close(reading), close(folder), close(device);
}

static void handle(int signal)
{
    int saved = errno;

    (void)signal;
    MUST(fsync(fd) == 0);
    nr_handled++;
    errno = saved;
}

static void jump(int signal)
{
    (void)signal;
    siglongjmp(before, 1);
}

static void set_timer(void (*handler)(int), int us)
{
    struct itimerval time = { { 0, us }, { 0, us } };
    struct sigaction action = { .sa_handler = handler };

    MUST(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &time, NULL) == 0);
}

/* Syncs with all signals blocked, or with none if there is an argument. */
static void *sync_until_over(void *takes_signals)
{
    long nr_failed = 0;
    sigset_t blocked;

    sigfillset(&blocked);
    if (takes_signals)
        sigemptyset(&blocked);
    MUST(pthread_sigmask(SIG_SETMASK, &blocked, NULL) == 0);
    while (!is_over)
        nr_failed += fsync(fd) != 0;
    return (void *)nr_failed;
}

/* Handlers interrupt syncs, and allocations of memory, beside a thread that syncs. */
static void handlers(void)
{
    volatile int nr_jumps = 0;
    pthread_t other;
    void *nr_failed;

    is_over = 0;
    MUST(pthread_create(&other, NULL, sync_until_over, NULL) == 0);
    set_timer(handle, 300);
    while (nr_handled < 100) {
        void *memory = malloc(1000 + nr_handled);
        MUST(memory && fsync(fd) == 0);
        free(memory);
    }
    /* The mask is restored, since the handler does not return. The first signal may come at once. */
    if (sigsetjmp(before, 1))
        nr_jumps++;
    else
        set_timer(jump, 500);
    while (nr_jumps < 100)
        MUST(fdatasync(fd) == 0);
    set_timer(SIG_IGN, 0);
    is_over = 1;
    MUST(pthread_join(other, &nr_failed) == 0);
    printf("handlers: %ld syncs failed\n", (long)nr_failed);
    printf("after them: %ld syncs failed\n", run_threads());
}

/* A signal that the program has blocked stays pending during syncs. A handler of SIGABRT syncs the
 * file, in a thread that syncs it. */
static void faults(void)
{
    struct sigaction action = { .sa_handler = handle };
    struct timespec pause = { 0, 200 * 1000 };
    pthread_t other;
    void *nr_failed;
    sigset_t abort_only;
    int taken = 0;

    sigemptyset(&abort_only);
    sigaddset(&abort_only, SIGABRT);
    MUST(pthread_sigmask(SIG_BLOCK, &abort_only, NULL) == 0 && kill(getpid(), SIGABRT) == 0);
    for (int n = 0; n < 20; n++)
        MUST(fsync(fd) == 0);
    MUST(sigwait(&abort_only, &taken) == 0);
    printf("blocked: %s\n", taken == SIGABRT ? "taken by sigwait" : "lost");
    MUST(sigaction(SIGABRT, &action, NULL) == 0);
    is_over = 0;
    MUST(pthread_create(&other, NULL, sync_until_over, &fd) == 0);
    nr_handled = 0;
    while (nr_handled < 200) {
        MUST(pthread_kill(other, SIGABRT) == 0);
        nanosleep(&pause, NULL);
    }
    is_over = 1;
    MUST(pthread_join(other, &nr_failed) == 0);
    MUST(pthread_sigmask(SIG_UNBLOCK, &abort_only, NULL) == 0);
    printf("SIGABRT: %ld syncs failed\n", (long)nr_failed);
}

static void *sync_when_cancelled(void *argument)
{
    MUST(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
    MUST(pthread_cancel(pthread_self()) == 0);
    MUST(fsync(fd) == 0);
    MUST(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
    if (argument)
        fsync(fd);
    else
        fdatasync(fd);
    return NULL;
}

static void cancellation(void)
{
    for (int n = 0; n < 2; n++) {
        pthread_t thread;
        void *result;

        MUST(pthread_create(&thread, NULL, sync_when_cancelled, n ? &fd : NULL) == 0);
        MUST(pthread_join(thread, &result) == 0);
        printf("%s: %s\n", n ? "fsync" : "fdatasync",
               result == PTHREAD_CANCELED ? "a cancellation point" : "none");
    }
    printf("after it: %ld syncs failed\n", run_threads());
}

/* Children are forked while a thread syncs, and sync by several threads. */
static void forks(void)
{
    pthread_t other;
    void *nr_failed;
    int nr_wrong = 0;

    is_over = 0;
    MUST(pthread_create(&other, NULL, sync_until_over, NULL) == 0);
    for (int n = 0; n < 10; n++) {
        int status;
        pid_t child;

        MUST(fsync(fd) == 0 && (child = fork()) >= 0);
        if (child == 0)
            _exit(fsync(fd) != 0 || run_threads() != 0);
        MUST(waitpid(child, &status, 0) == child);
        nr_wrong += status != 0;
    }
    is_over = 1;
    MUST(pthread_join(other, &nr_failed) == 0);
    printf("forks: %d children and %ld syncs failed\n", nr_wrong, (long)nr_failed);
}

/* The number becomes another file, again and again, while threads sync it. */
static void numbers(const char *path)
{
    char name[4096];
    int others[2];
    pthread_t threads[NR_THREADS];
    long nr_failed = 0;

    snprintf(name, sizeof(name), "%s.other", path);
    others[0] = dup(fd);
    others[1] = open(name, O_RDWR | O_CREAT, 0600);
    MUST(others[0] >= 0 && others[1] >= 0);
    is_over = 0;
    for (int n = 0; n < NR_THREADS; n++)
        MUST(pthread_create(&threads[n], NULL, sync_until_over, NULL) == 0);
    for (int n = 0; n < 2000; n++) {
        MUST(dup2(others[(n + 1) % 2], fd) == fd);
        usleep(100);
    }
    is_over = 1;
    for (int n = 0; n < NR_THREADS; n++) {
        void *result;
        MUST(pthread_join(threads[n], &result) == 0);
        nr_failed += (long)result;
    }
    printf("numbers: %ld syncs failed\n", nr_failed);
    close(others[0]), close(others[1]);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    MUST(fd >= 0);
    write_batch();
    close(fd);
    fd = open(argv[1], O_RDWR);
    MUST(fd >= 0);
    printf("threads: %ld syncs failed\n", run_threads());
    wrong_arguments(argv[1]);
    handlers();
    faults();
    cancellation();
    forks();
    numbers(argv[1]);
    return 0;
}
