/* From the arguments of a call to one value for each argument slot, as CPython itself would fill the frame. */
#include "native.h"

int count_arg_slots(PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS)
        + !!(code->co_flags & CO_VARKEYWORDS);
}

/* Slot that a keyword names, -1 if none does, -2 on error. */
static int find_slot(PyCodeObject *code, PyObject *keyword)
{
    int end = code->co_argcount + code->co_kwonlyargcount;
    for (int i = code->co_posonlyargcount; i < end; i++)
        if (PyTuple_GET_ITEM(code->co_localsplusnames, i) == keyword)
            return i;
    for (int i = code->co_posonlyargcount; i < end; i++) {
        int same = PyUnicode_Compare(PyTuple_GET_ITEM(code->co_localsplusnames, i), keyword);
        if (same == 0)
            return i;
        if (same == -1 && PyErr_Occurred())
            return -2;
    }
    return -1;
}

static int bind_keywords(PyCodeObject *code, PyObject *const *values, PyObject *kwnames, PyObject **flat,
    PyObject *extra)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); k++) {
        PyObject *keyword = PyTuple_GET_ITEM(kwnames, k);
        if (!PyUnicode_Check(keyword))
            return -1;
        int slot = find_slot(code, keyword);
        if (slot == -2)
            return -1;
        if (slot < 0) {
            if (extra == NULL || PyDict_SetItem(extra, keyword, values[k]) < 0)
                return -1;
        }
        else if (flat[slot])
            return -1;                    /* given twice */
        else
            flat[slot] = Py_NewRef(values[k]);
    }
    return 0;
}

static int fill_defaults(PyFunctionObject *fn, PyCodeObject *code, PyObject **flat)
{
    int n = code->co_argcount;
    Py_ssize_t n_defaults = fn->func_defaults ? PyTuple_GET_SIZE(fn->func_defaults) : 0;
    for (int i = 0; i < n; i++) {
        if (flat[i])
            continue;
        if (i < n - n_defaults)
            return -1;
        flat[i] = Py_NewRef(PyTuple_GET_ITEM(fn->func_defaults, i - (n - n_defaults)));
    }
    for (int i = n; i < n + code->co_kwonlyargcount; i++) {
        if (flat[i])
            continue;
        PyObject *value = fn->func_kwdefaults
            ? PyDict_GetItemWithError(fn->func_kwdefaults, PyTuple_GET_ITEM(code->co_localsplusnames, i)) : NULL;
        if (value == NULL)
            return -1;
        flat[i] = Py_NewRef(value);
    }
    return 0;
}

/* Fills flat with new references and returns 0; or returns -1, with no exception set and nothing to release, when the
 * call is wrong in any way: the caller then makes the original call, which raises what Python raises. */
int bind_arguments(PyFunctionObject *fn, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **flat)
{
    PyCodeObject *code = (PyCodeObject *)fn->func_code;
    int n = code->co_argcount, total = count_arg_slots(code), next = n + code->co_kwonlyargcount;
    Py_ssize_t taken = nargs < n ? nargs : n;
    memset(flat, 0, total * sizeof(PyObject *));
    for (Py_ssize_t i = 0; i < taken; i++)
        flat[i] = Py_NewRef(args[i]);
    if (code->co_flags & CO_VARARGS) {
        PyObject *rest = PyTuple_New(nargs - taken);
        if (rest == NULL)
            goto bad;
        for (Py_ssize_t i = taken; i < nargs; i++)
            PyTuple_SET_ITEM(rest, i - taken, Py_NewRef(args[i]));
        flat[next++] = rest;
    }
    else if (nargs > n)
        goto bad;
    PyObject *extra = NULL;
    if (code->co_flags & CO_VARKEYWORDS) {
        extra = PyDict_New();
        if (extra == NULL)
            goto bad;
        flat[next] = extra;
    }
    if (kwnames && bind_keywords(code, args + nargs, kwnames, flat, extra) < 0)
        goto bad;
    if (fill_defaults(fn, code, flat) < 0)
        goto bad;
    return 0;
bad:
    PyErr_Clear();
    for (int i = 0; i < total; i++)
        Py_CLEAR(flat[i]);
    return -1;
}
