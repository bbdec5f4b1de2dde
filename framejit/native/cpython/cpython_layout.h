/* Whether this interpreter keeps things where we read them. The extension is built for a release of CPython, and a
 * later patch of that release may lay something out otherwise: each part is checked on known objects at import
 * (framejit/environment/cpython_layout.py), and what does not hold is not used. */
#ifndef FRAMEJIT_CPYTHON_LAYOUT_H
#define FRAMEJIT_CPYTHON_LAYOUT_H
#include "cpython/compat.h"

typedef struct {
    int frames;                           /* else the frame hook is never installed */
    int dicts;                            /* else keys are looked up, and nothing is remembered of a guard tree */
    int instances;                        /* else Python is asked for the dictionary of an instance */
    int types;                            /* else nothing is remembered of a guard tree */
    int codes;                            /* else CPython is asked for what is kept in a code object */
    int sets;                             /* else the order of sets is not known */
} CPythonLayout;

#pragma GCC visibility push(hidden)
extern CPythonLayout fj_layout;
int cpython_layout_init(PyObject *module);
int frame_layout_holds(PyObject *fn, PyObject *replacement);        /* frame_probe.c; -1 with an exception */
int code_layout_holds(PyObject *code);                              /* code_record.c; -1 with an exception */
#pragma GCC visibility pop

/* The instance dictionary if it already exists as a dictionary object, borrowed; NULL when it has to be made (or there
 * is none). */
static inline PyObject *instance_dict_if_ready(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) {
        if (FJ_LIKELY(fj_layout.instances))
            return managed_dict_if_ready(obj);
        PyObject *dict = PyObject_GenericGetDict(obj, NULL);
        Py_XDECREF(dict);                 /* the instance keeps it */
        return dict;
    }
    if (FJ_LIKELY(type->tp_dictoffset > 0))
        return *(PyObject **)((char *)obj + type->tp_dictoffset);
    PyObject **behind_items = type->tp_dictoffset ? _PyObject_GetDictPtr(obj) : NULL;  /* subclasses of tuple and int */
    return behind_items ? *behind_items : NULL;
}

/* Where an instance keeps its dictionary, or NULL; holds what instance_dict_if_ready() gave. */
static inline PyObject **instance_dict_slot(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT)
        return fj_layout.instances ? managed_dict_slot(obj) : NULL;
    return type->tp_dictoffset > 0 ? (PyObject **)((char *)obj + type->tp_dictoffset) : type->tp_dictoffset
        ? _PyObject_GetDictPtr(obj) : NULL;
}
#endif
