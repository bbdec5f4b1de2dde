/* Forking for processes that end by _exit and run nothing of the program's. */
#include "native.h"
#include <unistd.h>

static PyObject *told(pid_t child)
{
    return child < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromLong((long)child);
}

/* As os.fork does, without what that has from CPython 3.12 on: it refuses at exit and warns of threads, because a child
 * could go on to start threads, or wait for what they hold. No instruction of Python may come between the fork and
 * PyOS_AfterFork_Child: it could be asked to hand the lock of the interpreter to a thread that the child has not. */
static PyObject *fork_process(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    PyOS_BeforeFork();
    pid_t child = fork();
    int error = errno;
    if (child == 0)
        PyOS_AfterFork_Child();
    else
        PyOS_AfterFork_Parent();
    errno = error;
    return told(child);
}

static PyObject *fork_again(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return told(fork());
}

static PyMethodDef methods[] = {
    {"fork", fork_process, METH_NOARGS,
     "fork() -> int: os.fork(), at exit too, and without a warning where the program has threads. Raises OSError where "
     "there can be no other process."},
    {"fork_again", fork_again, METH_NOARGS,
     "fork_again() -> int: a fork of a process that fork() has just made, of which Python knows all that it has to."},
    {NULL, NULL, 0, NULL},
};

int fork_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
