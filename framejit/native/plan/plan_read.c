/* The parts that descriptions of steps are made of: slots, shapes, and arguments of calls. */
#include "plan/plan_builder.h"

static int check_slot(PlanBuilder *b, long slot)
{
    if (slot >= 0 && slot < b->plan->n_values)
        return 0;
    PyErr_Format(PyExc_ValueError, "slot %ld of %d", slot, b->plan->n_values);
    return -1;
}

int plan_read_slot(PlanBuilder *b, PyObject *number, int *slot)
{
    long n = PyLong_AsLong(number);
    if ((n == -1 && PyErr_Occurred()) || check_slot(b, n) < 0)
        return -1;
    if (!b->live[n]) {
        PyErr_Format(PyExc_ValueError, "slot %ld is read while it holds nothing", n);
        return -1;
    }
    *slot = (int)n;
    return 0;
}

int plan_write_slot(PlanBuilder *b, PyObject *number, int *slot)
{
    long n = PyLong_AsLong(number);
    if ((n == -1 && PyErr_Occurred()) || check_slot(b, n) < 0)
        return -1;
    if (b->written[n]) {
        PyErr_Format(PyExc_ValueError, "slot %ld is written twice", n);
        return -1;
    }
    b->live[n] = b->written[n] = 1;
    *slot = (int)n;
    return 0;
}

int64_t *plan_read_integers(Plan *plan, PyObject *numbers, Py_ssize_t *count)
{
    PyObject *fast = PySequence_Fast(numbers, "integers are given as a tuple or list");
    int64_t *read = fast ? plan_allocate(plan, PySequence_Fast_GET_SIZE(fast), sizeof(int64_t)) : NULL;
    for (Py_ssize_t i = 0; read && i < PySequence_Fast_GET_SIZE(fast); i++) {
        read[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast, i));
        if (read[i] == -1 && PyErr_Occurred())
            read = NULL;
    }
    *count = fast ? PySequence_Fast_GET_SIZE(fast) : 0;
    Py_XDECREF(fast);
    return read;
}

int *plan_read_slots(PlanBuilder *b, PyObject *numbers, int *count)
{
    PyObject *fast = PySequence_Fast(numbers, "slots are given as a tuple or list");
    int *read = fast ? plan_allocate(b->plan, PySequence_Fast_GET_SIZE(fast), sizeof(int)) : NULL;
    for (Py_ssize_t i = 0; read && i < PySequence_Fast_GET_SIZE(fast); i++)
        if (plan_read_slot(b, PySequence_Fast_GET_ITEM(fast, i), &read[i]) < 0)
            read = NULL;
    *count = fast ? (int)PySequence_Fast_GET_SIZE(fast) : 0;
    Py_XDECREF(fast);
    return read;
}

GraphCopy *plan_read_places(PlanBuilder *b, PyObject *places, int *count)
{
    PyObject *fast = PySequence_Fast(places, "places are given as a tuple or list");
    GraphCopy *read = fast ? plan_allocate(b->plan, PySequence_Fast_GET_SIZE(fast), sizeof(GraphCopy)) : NULL;
    for (Py_ssize_t i = 0; read && i < PySequence_Fast_GET_SIZE(fast); i++) {
        PyObject *slot, *place = PySequence_Fast_GET_ITEM(fast, i);
        unsigned long long address;
        long long bytes = 0;
        if (!PyTuple_Check(place)) {
            PyErr_Format(PyExc_TypeError, "%R is no place of a value", place);
            read = NULL;
        }
        else if (!PyArg_ParseTuple(place, "OK|L:place of a value", &slot, &address, &bytes)
                 || plan_read_slot(b, slot, &read[i].slot) < 0)
            read = NULL;
        else {
            read[i].place = (void *)(uintptr_t)address;
            read[i].bytes = bytes;
        }
    }
    *count = fast ? (int)PySequence_Fast_GET_SIZE(fast) : 0;
    Py_XDECREF(fast);
    return read;
}

int plan_read_shape(Plan *plan, PyObject *sizes, PyObject *strides, Shape *shape)
{
    Py_ssize_t n_sizes, n_strides;
    if ((shape->sizes = plan_read_integers(plan, sizes, &n_sizes)) == NULL
        || (shape->strides = plan_read_integers(plan, strides, &n_strides)) == NULL)
        return -1;
    int bad = n_sizes != n_strides;
    for (Py_ssize_t i = 0; i < n_sizes && !bad; i++)
        bad = shape->sizes[i] < 0 || shape->strides[i] < 0;
    if (bad) {
        PyErr_Format(PyExc_ValueError, "%R and %R are not the sizes and strides of a tensor", sizes, strides);
        return -1;
    }
    shape->ndim = (int)n_sizes;
    return 0;
}

int plan_read_arg(PlanBuilder *b, PyObject *value, int depth, CallArg *arg)
{
    if (Py_IS_TYPE(value, &Value_Type)) {
        PyObject *number = PyLong_FromLong(value_index(value));
        int status = number ? plan_read_slot(b, number, &arg->slot) : -1;
        Py_XDECREF(number);
        arg->kind = ARG_VALUE;
        return status;
    }
    if (depth == 0 && (PyTuple_CheckExact(value) || PyList_CheckExact(value))) {
        arg->kind = PyTuple_CheckExact(value) ? ARG_TUPLE : ARG_LIST;
        arg->n_items = (int)PySequence_Fast_GET_SIZE(value);
        int plain = arg->kind == ARG_TUPLE;       /* a list is made anew for each call: the callee may change it */
        if ((arg->items = plan_allocate(b->plan, arg->n_items, sizeof(CallArg))) == NULL)
            return -1;
        for (int i = 0; i < arg->n_items; i++) {
            if (plan_read_arg(b, PySequence_Fast_GET_ITEM(value, i), 1, &arg->items[i]) < 0)
                return -1;
            plain &= arg->items[i].kind == ARG_CONSTANT;
        }
        if (!plain)
            return 0;
    }
    arg->kind = ARG_CONSTANT;
    arg->constant = value;
    return PyList_Append(b->plan->keep, value);
}
