/* Running an entry. Inline, because each level of C between the program and torch is paid for twice: a processor
 * foretells returns for so many levels only, and an operator of torch takes more than there are. */
#ifndef FRAMEJIT_ENTRY_RUN_H
#define FRAMEJIT_ENTRY_RUN_H
#include "native.h"
#include "cpython/c_stack.h"

#pragma GCC visibility push(hidden)
/* an entry that is gone, or runs the program's own code */
PyObject *entry_run_otherwise(Entry *entry, PyObject *const *args, size_t nargsf);
#pragma GCC visibility pop

/* May give a TailCall. */
static inline PyObject *entry_run(Entry *entry, PyObject *const *args, size_t nargsf)
{
    PyObject *function = entry->function;
    if (FJ_UNLIKELY(function == NULL || entry->flags & ENTRY_RUNS_USER_CODE))
        return entry_run_otherwise(entry, args, nargsf);
    int active = fj_scope.active;
    fj_scope.active = SCOPE_COMPILED;
    PyObject *result = call_deep(function, args, nargsf, NULL);
    fj_scope.active = active;
    return result;
}

/* What a call that was made comes to: the tail calls it ended with are made, and what waits is raised. */
static inline PyObject *finish_call(PyObject *result)
{
    if (FJ_UNLIKELY(result && Py_IS_TYPE(result, &TailCall_Type)))
        result = trampoline(result);
    return FJ_UNLIKELY(fj_scope.waiting != NULL) ? raise_waiting(result) : result;
}
#endif
