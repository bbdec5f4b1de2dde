/* When a constant in a guard equals a value: same exact type and same value, strictly enough that no program can tell
 * the two apart. Python's own == is too kind: 1 == True == 1.0, 0.0 == -0.0, (1,) == (1.0,); and too strict: nan !=
 * nan. */
#include "native.h"

static int same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static int items_equal(PyObject *a, PyObject *b)
{
    Py_ssize_t n = Py_SIZE(a);
    if (Py_SIZE(b) != n)
        return 0;
    for (Py_ssize_t i = 0; i < n && i < Py_SIZE(a) && i < Py_SIZE(b); i++) {
        PyObject *x = Py_NewRef(PySequence_Fast_GET_ITEM(a, i)), *y = Py_NewRef(PySequence_Fast_GET_ITEM(b, i));
        int equal = constant_equal(x, y);
        Py_DECREF(x);
        Py_DECREF(y);
        if (equal <= 0)
            return equal;
    }
    return 1;
}

static int dicts_equal(PyObject *a, PyObject *b)
{
    PyObject *left = PyDict_Items(a), *right = PyDict_Items(b);
    int equal = left && right ? items_equal(left, right) : -1;      /* order is part of what a program sees */
    Py_XDECREF(left);
    Py_XDECREF(right);
    return equal;
}

static int sets_equal(PyObject *a, PyObject *b)
{
    if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b))
        return 0;
    PyObject *left = PySequence_List(a), *right = PySequence_List(b);
    int equal = left && right ? 1 : -1;
    for (Py_ssize_t i = 0; equal == 1 && i < PyList_GET_SIZE(left); i++) {
        int found = 0;
        for (Py_ssize_t j = 0; found == 0 && j < PyList_GET_SIZE(right); j++)
            found = constant_equal(PyList_GET_ITEM(left, i), PyList_GET_ITEM(right, j));
        equal = found;
    }
    Py_XDECREF(left);
    Py_XDECREF(right);
    return equal;
}

static int slices_equal(PyObject *a, PyObject *b)
{
    PySliceObject *x = (PySliceObject *)a, *y = (PySliceObject *)b;
    int equal = constant_equal(x->start, y->start);
    if (equal == 1)
        equal = constant_equal(x->stop, y->stop);
    if (equal == 1)
        equal = constant_equal(x->step, y->step);
    return equal;
}

int constant_equal(PyObject *a, PyObject *b)
{
    if (a == b)
        return 1;
    if (Py_TYPE(a) != Py_TYPE(b))
        return 0;
    if (PyLong_CheckExact(a) || PyUnicode_CheckExact(a) || PyBytes_CheckExact(a))
        return PyObject_RichCompareBool(a, b, Py_EQ);
    if (PyFloat_CheckExact(a))
        return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
    if (PyComplex_CheckExact(a)) {
        Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
        return same_bits(x.real, y.real) && same_bits(x.imag, y.imag);
    }
    int equal;
    if (Py_EnterRecursiveCall(" in a guard"))
        return -1;
    if (PyTuple_Check(a) || PyList_CheckExact(a))
        equal = items_equal(a, b);
    else if (PyDict_CheckExact(a))
        equal = dicts_equal(a, b);
    else if (PyAnySet_CheckExact(a))
        equal = sets_equal(a, b);
    else if (PySlice_Check(a))
        equal = slices_equal(a, b);
    else
        equal = PyObject_RichCompareBool(a, b, Py_EQ);
    Py_LeaveRecursiveCall();
    return equal;
}

int constant_is_plain(PyObject *constant)
{
    if (constant == Py_None || constant == Py_Ellipsis || constant == Py_NotImplemented || PyBool_Check(constant)
        || PyLong_CheckExact(constant) || PyFloat_CheckExact(constant) || PyComplex_CheckExact(constant)
        || PyUnicode_CheckExact(constant) || PyBytes_CheckExact(constant))
        return 1;
    if (!PyTuple_CheckExact(constant))
        return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constant); i++)
        if (!constant_is_plain(PyTuple_GET_ITEM(constant, i)))
            return 0;
    return 1;
}
