/* What a class has in C and Python does not show: its name as messages give it, whether it has room for the slots of
   sequences, whether its objects hand out their memory. All of it stands in the public part of PyTypeObject. */

#include "native.h"

static PyTypeObject *as_type(PyObject *object)
{
    if (PyType_Check(object))
        return (PyTypeObject *)object;
    PyErr_Format(PyExc_TypeError, "a class is needed, not %.100s", Py_TYPE(object)->tp_name);
    return NULL;
}

static PyObject *type_name(PyObject *Py_UNUSED(module), PyObject *object)
{
    PyTypeObject *type = as_type(object);
    return type ? PyUnicode_FromString(type->tp_name) : NULL;
}

static PyObject *has_sequence_slots(PyObject *Py_UNUSED(module), PyObject *object)
{
    PyTypeObject *type = as_type(object);
    return type ? PyBool_FromLong(type->tp_as_sequence != NULL) : NULL;
}

static PyObject *is_buffer_type(PyObject *Py_UNUSED(module), PyObject *object)
{
    PyTypeObject *type = as_type(object);
    return type ? PyBool_FromLong(type->tp_as_buffer && type->tp_as_buffer->bf_getbuffer) : NULL;
}

static PyMethodDef methods[] = {
    {"type_name", type_name, METH_O,
     "type_name(cls) -> str: the name in messages; that of a class written in C may have its module in it."},
    {"has_sequence_slots", has_sequence_slots, METH_O,
     "has_sequence_slots(cls) -> bool: it has the table of a sequence's operations, be it empty."},
    {"is_buffer_type", is_buffer_type, METH_O, "is_buffer_type(cls) -> bool: its objects hand out their memory."},
    {NULL, NULL, 0, NULL},
};

int type_slots_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
