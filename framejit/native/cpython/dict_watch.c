/* See dict_watch.h. */
#include "cpython/dict_watch.h"
#include "cpython/cpython_layout.h"

static int attributes_are_told;            /* see check_attribute_watch */

#ifdef FJ_DICT_NUMBERS
static inline int has_watcher(void) { return 1; }
static inline const DictRecord *watched_record(PyObject *dict) { return dict_record(dict); }

static PyObject *dict_access(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_FromString("versions");
}
#else
enum { RECORDS_AT_ONCE = 128, FIRST_BUCKETS = 256, MANY_CHANGES = 1000, MANY_RENEWALS = 4 };

const DictRecord fj_no_dict = {.version = NO_VERSION - 1};
uint64_t fj_dict_epoch;

static int watcher = -1;
static inline int has_watcher(void) { return watcher >= 0; }
static DictRecord **buckets, *free_records;
static size_t n_buckets, n_records;       /* a power of two; those in buckets */

static inline size_t bucket_of(const PyObject *dict)
{
    return ((uintptr_t)dict >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 32 & (n_buckets - 1);
}

static DictRecord *find_record(const PyObject *dict)
{
    DictRecord *record = n_buckets ? buckets[bucket_of(dict)] : NULL;
    while (record && record->dict != dict)
        record = record->next;
    return record;
}

static int make_buckets(size_t n)
{
    DictRecord **old = buckets, **fresh = PyMem_RawCalloc(n, sizeof(DictRecord *));
    size_t n_old = n_buckets;
    if (fresh == NULL)
        return 0;
    buckets = fresh;
    n_buckets = n;
    for (size_t i = 0; i < n_old; i++)
        for (DictRecord *record = old[i], *next; record; record = next) {
            DictRecord **bucket = &buckets[bucket_of(record->dict)];
            next = record->next;
            record->next = *bucket;
            *bucket = record;
        }
    PyMem_RawFree(old);
    return 1;
}

static int make_records(void)
{
    DictRecord *made = PyMem_RawCalloc(RECORDS_AT_ONCE, sizeof(DictRecord));
    for (int i = 0; made && i < RECORDS_AT_ONCE; i++) {
        made[i].next = free_records;
        free_records = &made[i];
    }
    return made != NULL;
}

static DictRecord *add_record(PyObject *dict)
{
    if (n_records >= n_buckets && !make_buckets(n_buckets ? 2 * n_buckets : FIRST_BUCKETS) && n_buckets == 0)
        return NULL;
    if (free_records == NULL && !make_records())
        return NULL;
    DictRecord *record = free_records, **bucket = &buckets[bucket_of(dict)];
    free_records = record->next;
    *record = (DictRecord){.version = ++fj_dict_epoch, .dict = dict, .next = *bucket};
    *bucket = record;
    n_records++;
    return record;
}

static void remove_record(DictRecord *record)
{
    DictRecord **link = &buckets[bucket_of(record->dict)];
    while (*link != record)
        link = &(*link)->next;
    *link = record->next;
    record->dict = NULL;
    record->next = free_records;
    free_records = record;
    n_records--;
}

/* Called before the change is made. */
static int note_change(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value)
{
    (void)key;
    (void)value;
    DictRecord *record = find_record(dict);
    if (record == NULL)
        return 0;
    record->version = ++fj_dict_epoch;
    if (event == PyDict_EVENT_DEALLOCATED)
        remove_record(record);
    else if (++record->unread > MANY_CHANGES) {
        /* it is filled, and nobody looks: the program need not pay for it */
        record->watched = 0;
        PyDict_Unwatch(watcher, dict);
    }
    return 0;
}

/* Only where there is a watcher. */
static const DictRecord *watched_record(PyObject *dict)
{
    DictRecord *record = find_record(dict);
    if (record == NULL && (record = add_record(dict)) == NULL)
        return fj_no_record;
    record->renewals += record->unread && record->renewals < MANY_RENEWALS;
    record->unread = 0;
    /* Whoever read an attribute of such an instance can compare the places of the values that it read. */
    if (dict_is_split(dict) && record->renewals == MANY_RENEWALS)
        return fj_no_record;
    if (!record->watched) {               /* it may have changed, or be another one at that address */
        record->version = ++fj_dict_epoch;
        if (PyDict_Watch(watcher, dict) < 0) {
            PyErr_Clear();
            return fj_no_record;
        }
        record->watched = 1;
    }
    return record;
}

const DictRecord *dict_record(PyObject *dict)
{
    if (watcher < 0 || !fj_layout.dicts || (dict_is_split(dict) && !attributes_are_told))
        return fj_no_record;
    return watched_record(dict);
}

static PyObject *dict_access(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_FromString(watcher < 0 ? "comparison" : "watcher");
}
#endif

/* CPython 3.13.0 tells nobody of writes to an instance while its dictionary shares the values that lie in it; 3.14
 * does. */
static PyObject *check_attribute_watch(PyObject *module, PyObject *args)
{
    PyObject *dict, *changes;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!:check_attribute_watch", &PyDict_Type, &dict, &PyTuple_Type, &changes))
        return NULL;
    const DictRecord *record = has_watcher() ? watched_record(dict) : fj_no_record;
    int told = record != fj_no_record;
    for (Py_ssize_t i = 0; told && i < PyTuple_GET_SIZE(changes); i++) {
        uint64_t version = record_version(record);
        PyObject *result = PyObject_CallNoArgs(PyTuple_GET_ITEM(changes, i));
        if (result == NULL)
            return NULL;
        Py_DECREF(result);
        told = record_version(record) != version;
    }
    attributes_are_told = told;
    return PyBool_FromLong(told);
}

static PyMethodDef methods[] = {
    {"check_attribute_watch", check_attribute_watch, METH_VARARGS,
     "check_attribute_watch(dict, changes) -> bool: whether each of the changes (callables) of the instance whose "
     "dictionary it is renewed the dictionary's version. If not, attributes are compared."},
    {"dict_access", dict_access, METH_NOARGS,
     "dict_access() -> str: how it is known that a dictionary did not change: by 'versions', by a 'watcher', or by "
     "'comparison' of what was read."},
    {NULL, NULL, 0, NULL},
};

int dict_watch_init(PyObject *module)
{
#ifndef FJ_DICT_NUMBERS
    watcher = PyDict_AddWatcher(note_change);
    if (watcher < 0)
        PyErr_Clear();                    /* others have them all */
#endif
    return PyModule_AddFunctions(module, methods);
}
