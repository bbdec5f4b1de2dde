/* How much C stack is left.
 *
 * Plain Python calls take none, while a call through a dispatcher or under the frame hook does. CPython's own count of
 * it is too strict for the depth that the recursion limit allows (3.12 and 3.13 charge each evaluation of a frame from
 * C against a small allowance), or does not exist (3.11). 3.14 and later look at the stack themselves, nearer to its
 * end than we do. So we give back what an evaluation is charged and look at the real stack instead. */
#ifndef FRAMEJIT_C_STACK_H
#define FRAMEJIT_C_STACK_H
#include "native.h"

#pragma GCC visibility push(hidden)
extern FJ_THREAD_LOCAL char *fj_stack_floor;
void find_stack_floor(void);
void raise_recursion_error(void);
#pragma GCC visibility pop

static inline int stack_is_low(void)
{
    if (FJ_UNLIKELY(fj_stack_floor == NULL))
        find_stack_floor();
    return (char *)__builtin_frame_address(0) < fj_stack_floor;
}

/* Calls a Python function, which starts an evaluation. */
static inline PyObject *call_deep(PyObject *fn, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (FJ_UNLIKELY(stack_is_low())) {
        raise_recursion_error();
        return NULL;
    }
    PyThreadState *ts = counting_thread();
    c_recursion_give(ts);
    PyObject *result = ((PyFunctionObject *)fn)->vectorcall(fn, args, nargsf, kwnames);
    c_recursion_take(ts);
    return result;
}
#endif
