/* An import makes many objects that stay, and the collections that they set off find nothing; of transformers' they are
 * a fifth of the time. The collector rests by a first threshold that is never reached and that nobody else sets: what a
 * library says of the collector while it is imported holds afterwards. */
#include "cpython/collector.h"
#include "cpython/compat.h"

enum { NEVER = (1 << 30) + 1 };
enum { MANY_OBJECTS = 20000 };              /* of which a collection would take milliseconds */

static PyObject *call(const char *name, PyObject *args)
{
    PyObject *gc = PyImport_ImportModule("gc"), *function = gc ? PyObject_GetAttrString(gc, name) : NULL;
    PyObject *result = function ? PyObject_CallObject(function, args) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(gc);
    return result;
}

/* The first of the numbers that a function of gc gives, -1 if there is none. */
static long first_of(const char *name, PyObject **all)
{
    PyObject *numbers = call(name, NULL);
    PyObject *number = numbers && PyTuple_Check(numbers) && PyTuple_GET_SIZE(numbers) ? PyTuple_GET_ITEM(numbers, 0)
                                                                                      : numbers;
    long first = number && PyLong_Check(number) ? PyLong_AsLong(number) : -1;
    if (all)
        *all = Py_XNewRef(numbers);
    Py_XDECREF(numbers);
    return first;
}

/* Take all objects for old ones, without looking at any: the next collection would go through all that is new. Objects
 * that the program has frozen stay so. */
static void take_for_old(void)
{
#if PY_VERSION_HEX < 0x030E0000             /* later ones go by increments */
    if (first_of("get_count", NULL) < MANY_OBJECTS || first_of("get_freeze_count", NULL) != 0)
        return;
    Py_XDECREF(call("freeze", NULL));
    Py_XDECREF(call("unfreeze", NULL));
#endif
}

PyObject *collector_rest(void)
{
    PyObject *before = NULL, *never = NULL, *done = NULL;
    long first = first_of("get_threshold", &before);
    if (first > 0 && first != NEVER && PyTuple_Check(before) && (never = PySequence_List(before))
        && PyList_SetItem(never, 0, PyLong_FromLong(NEVER)) == 0) {
        PyObject *args = PyList_AsTuple(never);
        done = args ? call("set_threshold", args) : NULL;
        Py_XDECREF(args);
    }
    Py_XDECREF(never);
    if (done == NULL)
        Py_CLEAR(before);
    Py_XDECREF(done);
    PyErr_Clear();
    return before;
}

void collector_resume(PyObject *before)
{
    SavedError error = error_save();
    if (first_of("get_threshold", NULL) == NEVER) {         /* nobody else has set it meanwhile */
        take_for_old();
        Py_XDECREF(call("set_threshold", before));
    }
    Py_DECREF(before);
    PyErr_Clear();
    error_restore(error);
}
