// Keeps the stacks of the threads of loom and shuttle for the next threads.
//
// Both run each thread of a model on a stack of its own, which the crate `generator` maps, protects
// with a guard page, and unmaps when the thread ends. A model has millions of threads, so half of
// the time of a run was spent in the kernel. This library is preloaded into the program of the
// models, and takes the place of the three calls for these mappings only: no other caller in
// these programs maps memory with MAP_STACK through the C library's symbols.
//
// A stack that is used again has the old contents. `generator` does not rely on zeroes.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NR_MAX = 64 };

static struct stack {
    void *address;
    size_t length;
    bool is_free;
    // Whether its first page is the guard page.
    bool is_guarded;
} stacks[NR_MAX];
// The number of used entries. All of this is protected by the lock.
static int nr;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// Returns the stack that begins here, or NULL.
static struct stack *find(const void *address)
{
    for (int i = 0; i < nr; i++)
        if (stacks[i].address == address)
            return &stacks[i];
    return NULL;
}

// Returns a free stack of this length, which is then taken, or NULL.
static void *take(size_t length)
{
    for (int i = 0; i < nr; i++)
        if (stacks[i].is_free && stacks[i].length == length) {
            stacks[i].is_free = false;
            return stacks[i].address;
        }
    return NULL;
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    bool is_stack = !address && fd == -1 && protection == (PROT_READ | PROT_WRITE) &&
                    flags == (MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK);
    void *mapped = NULL;

    if (is_stack) {
        pthread_mutex_lock(&lock);
        mapped = take(length);
        pthread_mutex_unlock(&lock);
    }
    if (mapped)
        return mapped;
    mapped = (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
    if (is_stack && mapped != MAP_FAILED) {
        pthread_mutex_lock(&lock);
        if (nr < NR_MAX)
            stacks[nr++] = (struct stack){ .address = mapped, .length = length };
        pthread_mutex_unlock(&lock);
    }
    return mapped;
}

int mprotect(void *address, size_t length, int protection)
{
    bool is_done = false;

    pthread_mutex_lock(&lock);
    struct stack *stack = find(address);
    if (stack && protection == PROT_NONE) {
        is_done = stack->is_guarded;
        stack->is_guarded = true;
    }
    pthread_mutex_unlock(&lock);
    return is_done ? 0 : (int)syscall(SYS_mprotect, address, length, protection);
}

int munmap(void *address, size_t length)
{
    bool is_kept = false;

    pthread_mutex_lock(&lock);
    struct stack *stack = find(address);
    if (stack && stack->length == length)
        is_kept = stack->is_free = true;
    pthread_mutex_unlock(&lock);
    return is_kept ? 0 : (int)syscall(SYS_munmap, address, length);
}
