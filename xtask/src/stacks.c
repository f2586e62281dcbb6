// Keeps the stacks of loom's threads for later threads.
//
// Loom runs each thread of a model on its own stack. The crate `generator` maps the stack, protects
// a guard page, and unmaps the stack when the thread ends. A model has millions of threads, so half
// of the time of a run was spent in the kernel. This library is preloaded into the programs of the
// models, and replaces the three calls for these mappings only: no other caller in these programs
// maps memory with MAP_STACK through the symbols of the C library. A stack that is unmapped or
// protected in any other way is not kept.
//
// A stack that is used again has the old contents. `generator` does not rely on zeroes.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NR_MAX = 64 };

static struct stack {
    void *address;
    size_t length;
    // Bytes of the guard at its start; 0 without one.
    size_t guard;
    bool is_free;
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

// Removes the entries of stacks that overlap these bytes.
static void forget(const void *address, size_t length)
{
    uintptr_t begin = (uintptr_t)address;

    for (int i = nr - 1; i >= 0; i--) {
        uintptr_t stack = (uintptr_t)stacks[i].address;
        if (begin < stack + stacks[i].length && stack < begin + length)
            stacks[i] = stacks[--nr];
    }
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
    bool is_guard = stack && protection == PROT_NONE && length < stack->length;
    if (is_guard)
        is_done = stack->guard == length;
    else
        forget(address, length);
    pthread_mutex_unlock(&lock);
    if (is_done)
        return 0;
    int result = (int)syscall(SYS_mprotect, address, length, protection);
    if (is_guard) {
        pthread_mutex_lock(&lock);
        stack = find(address);
        if (stack && result == 0 && stack->guard == 0)
            stack->guard = length;
        else
            forget(address, length);
        pthread_mutex_unlock(&lock);
    }
    return result;
}

int munmap(void *address, size_t length)
{
    bool is_kept = false;

    pthread_mutex_lock(&lock);
    struct stack *stack = find(address);
    if (stack && stack->length == length)
        is_kept = stack->is_free = true;
    else
        forget(address, length);
    pthread_mutex_unlock(&lock);
    return is_kept ? 0 : (int)syscall(SYS_munmap, address, length);
}
