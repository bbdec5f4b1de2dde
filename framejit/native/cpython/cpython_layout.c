/* See cpython_layout.h. Nothing is followed here that was not found readable, however wrong the layout is. */
#include "cpython/cpython_layout.h"
#include "native.h"
#include "cpython/safe_read.h"

CPythonLayout fj_layout = {1, 1, 1, 1, 1, 1};

/* ---- dictionaries ---- */
static int keys_hold(const PyDictKeysObject *keys, PyObject *names, PyObject *values, PyObject *const *places)
{
    enum { MOST = 8 };
    PyDictKeysObject head;
    Py_ssize_t n = PyTuple_GET_SIZE(names);
    if (!safe_read(keys, &head, sizeof(head)) || head.dk_nentries < n || head.dk_nentries > 2 * MOST
        || head.dk_log2_size > MOST || head.dk_log2_index_bytes > MOST || head.dk_kind > DICT_KEYS_SPLIT || n > MOST)
        return 0;
    const char *entries = keys->dk_indices + ((size_t)1 << head.dk_log2_index_bytes);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *key, *value;
        if (DK_IS_UNICODE(&head)) {
            PyDictUnicodeEntry entry;
            if (!safe_read(entries + i * sizeof(entry), &entry, sizeof(entry)))
                return 0;
            key = entry.me_key;
            value = entry.me_value;
        }
        else {
            PyDictKeyEntry entry;
            if (!safe_read(entries + i * sizeof(entry), &entry, sizeof(entry))
                || entry.me_hash != PyObject_Hash(PyTuple_GET_ITEM(names, i)))
                return 0;
            key = entry.me_key;
            value = entry.me_value;
        }
        if (places && !safe_read(&places[i], &value, sizeof(value)))
            return 0;
        if (key != PyTuple_GET_ITEM(names, i) || value != PyTuple_GET_ITEM(values, i))
            return 0;
    }
    return 1;
}

static int dict_holds(PyObject *dict, PyObject *names, PyObject *values, int shares)
{
    PyDictObject copy;
    PyDictValues *table;
    if (!safe_read(dict, &copy, sizeof(copy)) || copy.ma_used != PyTuple_GET_SIZE(names))
        return 0;
    table = copy.ma_values;
    if ((table != NULL) != shares && FJ_INLINE_VALUES)
        return 0;
#if FJ_INLINE_VALUES
    return keys_hold(copy.ma_keys, names, values, table ? table->values : NULL);
#else
    return table != NULL || keys_hold(copy.ma_keys, names, values, NULL);     /* such a table is read nowhere */
#endif
}

static PyObject *check_dict(PyObject *module, PyObject *args)
{
    PyObject *dict, *names, *values;
    int shares;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!O!p:check_dict", &PyDict_Type, &dict, &PyTuple_Type, &names, &PyTuple_Type,
        &values, &shares))
        return NULL;
    return PyBool_FromLong(dict_holds(dict, names, values, shares));
}

/* ---- instances, types, sets ---- */
static PyObject *check_instance(PyObject *module, PyObject *obj)
{
    (void)module;
    PyObject *dict = PyObject_GenericGetDict(obj, NULL), *found = NULL;
    if (dict == NULL)
        return NULL;
    int holds = !(Py_TYPE(obj)->tp_flags & Py_TPFLAGS_MANAGED_DICT)
        || (safe_read(managed_dict_slot(obj), &found, sizeof(found)) && found == dict);
    Py_DECREF(dict);
    return PyBool_FromLong(holds);
}

static PyObject *type_version(PyObject *module, PyObject *type)
{
    (void)module;
    if (!PyType_Check(type)) {
        PyErr_SetString(PyExc_TypeError, "type_version takes a class");
        return NULL;
    }
    PyObject *name = PyUnicode_InternFromString("__class__");
    if (name == NULL)
        return NULL;
    _PyType_Lookup((PyTypeObject *)type, name);         /* gives the class a version, if it may have one */
    Py_DECREF(name);
    return PyLong_FromUnsignedLong(((PyTypeObject *)type)->tp_version_tag);
}

static PyObject *check_set(PyObject *module, PyObject *object)
{
    (void)module;
    PySetObject copy;
    if (!PyAnySet_Check(object) || !safe_read(object, &copy, sizeof(copy)) || copy.mask < 7 || copy.mask > 31
        || (copy.mask & (copy.mask + 1)) != 0)
        Py_RETURN_FALSE;
    Py_ssize_t seen = 0;
    for (Py_ssize_t i = 0; i <= copy.mask; i++) {
        setentry entry;
        if (!safe_read(&copy.table[i], &entry, sizeof(entry)))
            Py_RETURN_FALSE;
        seen += entry.key != NULL && entry.hash != -1;
    }
    /* the order of iteration tells that the entries are these */
    PyObject *iterator = seen == PySet_GET_SIZE(object) && copy.used == seen ? PyObject_GetIter(object) : NULL;
    int holds = iterator != NULL;
    for (Py_ssize_t i = 0; holds && i <= copy.mask; i++) {
        const setentry *entry = &copy.table[i];
        if (entry->key == NULL || entry->hash == -1)
            continue;
        PyObject *member = PyIter_Next(iterator);
        holds = member == entry->key && PyObject_Hash(member) == entry->hash;
        Py_XDECREF(member);
    }
    Py_XDECREF(iterator);
    PyErr_Clear();
    return PyBool_FromLong(holds);
}

/* ---- frames and code objects ---- */
static PyObject *check_frames(PyObject *module, PyObject *args)
{
    PyObject *fn, *replacement;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!:check_frames", &PyFunction_Type, &fn, &PyCode_Type, &replacement))
        return NULL;
    int holds = frame_layout_holds(fn, replacement);
    return holds < 0 ? NULL : PyBool_FromLong(holds);
}

static PyObject *check_code(PyObject *module, PyObject *code)
{
    (void)module;
    if (!PyCode_Check(code)) {
        PyErr_SetString(PyExc_TypeError, "check_code takes a code object");
        return NULL;
    }
    int holds = code_layout_holds(code);
    return holds < 0 ? NULL : PyBool_FromLong(holds);
}

/* ---- what was found ---- */
static const struct { const char *name; int *place; } parts[] = {
    {"frames", &fj_layout.frames}, {"dicts", &fj_layout.dicts}, {"instances", &fj_layout.instances},
    {"types", &fj_layout.types}, {"codes", &fj_layout.codes}, {"sets", &fj_layout.sets},
};

static PyObject *set_cpython_layout(PyObject *module, PyObject *args)
{
    const char *name;
    int holds;
    (void)module;
    if (!PyArg_ParseTuple(args, "sp:set_cpython_layout", &name, &holds))
        return NULL;
    for (size_t i = 0; i < Py_ARRAY_LENGTH(parts); i++)
        if (strcmp(parts[i].name, name) == 0) {
            *parts[i].place = holds;
            Py_RETURN_NONE;
        }
    PyErr_Format(PyExc_ValueError, "no part of the interpreter is called %s", name);
    return NULL;
}

static PyObject *cpython_layout(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < Py_ARRAY_LENGTH(parts); i++)
        if (PyDict_SetItemString(dict, parts[i].name, *parts[i].place ? Py_True : Py_False) < 0)
            Py_CLEAR(dict);
    return dict;
}

static PyMethodDef methods[] = {
    {"check_dict", check_dict, METH_VARARGS,
     "check_dict(dict, keys, values, shares) -> bool: whether it lies in memory as expected; shares: with its class."},
    {"check_instance", check_instance, METH_O,
     "check_instance(obj) -> bool: whether its dictionary is where it is expected."},
    {"check_set", check_set, METH_O, "check_set(set) -> bool: whether it lies in memory as expected."},
    {"check_frames", check_frames, METH_VARARGS,
     "check_frames(fn, code) -> bool: whether a frame of fn(a, b) has what is expected where it is expected, and runs "
     "code instead."},
    {"check_code", check_code, METH_O,
     "check_code(code) -> bool: whether what is kept in a code object is found where it is expected."},
    {"type_version", type_version, METH_O,
     "type_version(cls) -> int: the number that changes with a class; 0: it has none."},
    {"set_cpython_layout", set_cpython_layout, METH_VARARGS,
     "set_cpython_layout(part, holds): whether what was checked of a part may be relied on."},
    {"cpython_layout", cpython_layout, METH_NOARGS, "cpython_layout() -> dict: by part, whether it is read natively."},
    {NULL, NULL, 0, NULL},
};

int cpython_layout_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
