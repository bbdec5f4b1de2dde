/* What hash tables keep and Python does not show: the hashes that keys had when they came in, and where the members of
 * a set lie, which decides the order of iteration. And the reverse: a key put in under a hash that is known, without
 * asking it, and a set laid out as another one is. */
#include "cpython/cpython_layout.h"
#include "native.h"

static PyObject *stored_dict_hashes(PyObject *dict)
{
    PyObject *hashes = PyList_New(0), *key, *value;
    PyDictKeysObject *keys = ((PyDictObject *)dict)->ma_keys;
    Py_ssize_t pos = 0;
    while (hashes && PyDict_Next(dict, &pos, &key, &value)) {
        /* tables of nothing but plain strings keep no hashes; of others PyDict_Next leaves `pos` behind the entry */
        PyObject *number = PyLong_FromSsize_t(!fj_layout.dicts || DK_IS_UNICODE(keys) ? PyObject_Hash(key)
            : DK_ENTRIES(keys)[pos - 1].me_hash);
        if (number == NULL || PyList_Append(hashes, number) < 0)
            Py_CLEAR(hashes);
        Py_XDECREF(number);
    }
    return hashes;
}

static int is_member(const setentry *entry)
{
    return entry->key != NULL && entry->hash != -1;          /* -1: what is left of a member that went */
}

static PyObject *stored_set_hashes(PySetObject *set)
{
    PyObject *hashes = PyList_New(0);
    for (Py_ssize_t i = 0; hashes && i <= set->mask; i++) {
        if (!is_member(&set->table[i]))
            continue;
        PyObject *number = PyLong_FromSsize_t(set->table[i].hash);
        if (number == NULL || PyList_Append(hashes, number) < 0)
            Py_CLEAR(hashes);
        Py_XDECREF(number);
    }
    return hashes;
}

static int sets_are_known(void)
{
    if (!fj_layout.sets)
        PyErr_SetString(PyExc_SystemError, "sets of this Python are not laid out as framejit knows them");
    return fj_layout.sets;
}

static PyObject *stored_hashes(PyObject *module, PyObject *table)
{
    if (PyAnySet_Check(table) && !sets_are_known())
        return NULL;
    if (PyDict_Check(table) || PyAnySet_Check(table)) {
        PyObject *hashes = PyDict_Check(table) ? stored_dict_hashes(table) : stored_set_hashes((PySetObject *)table);
        if (hashes)
            Py_SETREF(hashes, PyList_AsTuple(hashes));
        return hashes;
    }
    PyErr_Format(PyExc_TypeError, "stored_hashes() takes a dict or a set, not %.100s", Py_TYPE(table)->tp_name);
    return NULL;
}

/* (number of slots, slots of members in order, slots of members that went, where pop() goes on, members) */
static PyObject *set_layout(PyObject *module, PyObject *object)
{
    if (!PyAnySet_Check(object)) {
        PyErr_Format(PyExc_TypeError, "set_layout() takes a set, not %.100s", Py_TYPE(object)->tp_name);
        return NULL;
    }
    if (!sets_are_known())
        return NULL;
    PySetObject *set = (PySetObject *)object;
    PyObject *taken = PyList_New(0), *left = PyList_New(0), *members = PyList_New(0);
    int failed = !taken || !left || !members;
    for (Py_ssize_t i = 0; !failed && i <= set->mask; i++) {
        const setentry *entry = &set->table[i];
        if (entry->key == NULL)
            continue;
        PyObject *slot = PyLong_FromSsize_t(i);
        failed = slot == NULL || PyList_Append(is_member(entry) ? taken : left, slot) < 0
                 || (is_member(entry) && PyList_Append(members, entry->key) < 0);
        Py_XDECREF(slot);
    }
    if (!failed) {
        Py_SETREF(taken, PyList_AsTuple(taken));
        Py_SETREF(left, PyList_AsTuple(left));
        Py_SETREF(members, PyList_AsTuple(members));
        failed = !taken || !left || !members;
    }
    PyObject *layout = failed ? NULL : Py_BuildValue("(nOOnO)", set->mask + 1, taken, left, set->finger, members);
    Py_XDECREF(taken);
    Py_XDECREF(left);
    Py_XDECREF(members);
    return layout;
}

/* The mark that CPython leaves in a slot whose member went; no header of 3.13 has it. */
static PyObject *departed(void)
{
    static PyObject *mark;
    if (sets_are_known() && mark == NULL) {
        PyObject *scratch = PySet_New(NULL);
        if (scratch && PySet_Add(scratch, Py_None) == 0 && PySet_Discard(scratch, Py_None) == 1) {
            PySetObject *set = (PySetObject *)scratch;
            for (Py_ssize_t i = 0; i <= set->mask; i++)
                if (set->table[i].key != NULL && set->table[i].hash == -1)
                    mark = set->table[i].key;              /* immortal: a static object of CPython's */
        }
        Py_XDECREF(scratch);
        if (mark == NULL && !PyErr_Occurred())
            PyErr_SetString(PyExc_SystemError, "sets of this Python are not laid out as framejit knows them");
    }
    return mark;
}

/* Puts a member or a mark into a free slot of a set that is being laid out. */
static int place(PySetObject *set, PyObject *slot_number, PyObject *key, Py_hash_t hash)
{
    Py_ssize_t slot = PyLong_AsSsize_t(slot_number);
    if (slot == -1 && PyErr_Occurred())
        return -1;
    if (slot < 0 || slot > set->mask || set->table[slot].key != NULL) {
        PyErr_SetString(PyExc_ValueError, "a slot of the layout is taken or does not exist");
        return -1;
    }
    set->table[slot].key = Py_NewRef(key);
    set->table[slot].hash = hash;
    set->fill++;
    set->used += hash != -1;
    return 0;
}

static PyObject *set_of_layout(PyObject *module, PyObject *args)
{
    Py_ssize_t n, finger;
    PyObject *cls, *taken, *left, *members, *hashes;
    if (!PyArg_ParseTuple(args, "OnO!O!nO!O!:set_of_layout", &cls, &n, &PyTuple_Type, &taken, &PyTuple_Type, &left,
        &finger, &PyTuple_Type, &members, &PyTuple_Type, &hashes))
        return NULL;
    Py_ssize_t n_members = PyTuple_GET_SIZE(members), n_left = PyTuple_GET_SIZE(left);
    if (n < PySet_MINSIZE || n > PY_SSIZE_T_MAX / 64 || n & (n - 1) || PyTuple_GET_SIZE(taken) != n_members
        || n_members + n_left >= n || PyTuple_GET_SIZE(hashes) != n_members
        || (cls != (PyObject *)&PySet_Type && cls != (PyObject *)&PyFrozenSet_Type)) {
        PyErr_SetString(PyExc_ValueError, "not the layout of a set");
        return NULL;
    }
    PyObject *mark = departed(),
        *result = mark == NULL ? NULL : cls == (PyObject *)&PySet_Type ? PySet_New(NULL) : PyFrozenSet_New(NULL);
    if (result == NULL)
        return NULL;
    PySetObject *set = (PySetObject *)result;
    if (n > PySet_MINSIZE) {
        setentry *table = PyMem_Calloc(n, sizeof(setentry));
        if (table == NULL) {
            Py_DECREF(result);
            return PyErr_NoMemory();
        }
        set->table = table;
        set->mask = n - 1;
    }
    set->finger = finger;
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < n_members; i++) {
        PyObject *member = PyTuple_GET_ITEM(members, i);
        PyObject *known = PyTuple_GET_ITEM(hashes, i);
        Py_hash_t hash = known == Py_None ? PyObject_Hash(member) : PyLong_AsSsize_t(known);
        failed = (hash == -1 && PyErr_Occurred()) || place(set, PyTuple_GET_ITEM(taken, i), member, hash) < 0;
    }
    for (Py_ssize_t i = 0; !failed && i < n_left; i++)
        failed = place(set, PyTuple_GET_ITEM(left, i), mark, -1) < 0;
    if (failed)
        Py_CLEAR(result);
    return result;
}

static PyObject *dict_set_known_hash(PyObject *module, PyObject *args)
{
    PyObject *dict, *key, *value;
    Py_ssize_t hash;
    if (!PyArg_ParseTuple(args, "O!OnO:dict_set_known_hash", &PyDict_Type, &dict, &key, &hash, &value))
        return NULL;
    if (hash == -1) {
        PyErr_SetString(PyExc_ValueError, "-1 is no hash");
        return NULL;
    }
    if (_PyDict_SetItem_KnownHash(dict, key, value, hash) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"stored_hashes", stored_hashes, METH_O, "The hashes that a dict or a set keeps of its keys, in order."},
    {"set_layout", set_layout, METH_O,
     "How a set lies in memory, which decides its order: what set_of_layout() takes."},
    {"set_of_layout", set_of_layout, METH_VARARGS,
     "set_of_layout(cls, slots, taken, left, finger, members, hashes): a set or frozenset that lies in memory as told. "
     "A hash may be None: the member is asked."},
    {"dict_set_known_hash", dict_set_known_hash, METH_VARARGS,
     "dict_set_known_hash(dict, key, hash, value): set an item without asking the key for its hash."},
    {NULL, NULL, 0, NULL},
};

int hash_table_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
