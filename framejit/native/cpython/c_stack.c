/* Where the C stack of a thread ends; see c_stack.h. */
#define _GNU_SOURCE
#include "cpython/c_stack.h"
#include <pthread.h>

enum { STACK_RESERVE = 256 * 1024 };        /* for C code below the last frame, and for handling the error */

FJ_THREAD_LOCAL char *fj_stack_floor;

void find_stack_floor(void)
{
    pthread_attr_t attributes;
    void *lowest = NULL;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &lowest, &size);
        pthread_attr_destroy(&attributes);
    }
    size_t reserve = size / 4 < STACK_RESERVE ? size / 4 : STACK_RESERVE;
    fj_stack_floor = (char *)lowest + reserve + 1;
}

void raise_recursion_error(void)
{
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
}
