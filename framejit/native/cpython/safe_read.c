/* See safe_read.h. The kernel is asked to copy: it refuses an address that is none, where a load would end the process.
 * By the bare system calls, since an address sanitizer watches the functions for them: what is tried may end before the
 * place that is looked at. */
#define _GNU_SOURCE
#include "cpython/safe_read.h"
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ROOM = 4096 };

/* Where a process may not copy from itself, containers forbid that to some. */
static int read_through_pipe(const void *where, void *to, size_t n)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return 0;
    int done = syscall(SYS_write, ends[1], where, n) == (ssize_t)n && read(ends[0], to, n) == (ssize_t)n;
    close(ends[0]);
    close(ends[1]);
    return done;
}

int safe_read(const void *where, void *to, size_t n)
{
    struct iovec from = {(void *)where, n}, into = {to, n};
    if (n > ROOM)
        return 0;
    return syscall(SYS_process_vm_readv, (long)getpid(), &into, 1L, &from, 1L, 0L) == (ssize_t)n
        || read_through_pipe(where, to, n);
}
