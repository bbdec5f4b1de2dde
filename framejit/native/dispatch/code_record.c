/* What is known about a code object: whether its frames may be captured, and the cache of their entries.
 *
 * The record hangs on the code object (co_extra), which the collector does not see through. If it owned the entries, a
 * cycle from a function through its code and entries back to the function would never be freed. So it only borrows the
 * cache; the owners are the dispatchers under which the entries were captured, and they are ordinary containers. */
#include "cpython/cpython_layout.h"
#include "native.h"
#include "cpython/safe_read.h"

/* Private to CPython's codeobject.c, unchanged from 3.6 to 3.14; _PyCode_GetExtra is a call and a check too much on
 * every frame. */
typedef struct {
    Py_ssize_t size;
    void *extras[1];
} CodeExtra;

static Py_ssize_t extra_index = -1;
static unsigned generation;
static EntryCache ring;                   /* head of the ring of all code caches; not an object itself */

CodeRecord *code_record(PyCodeObject *code)
{
    if (FJ_UNLIKELY(!fj_layout.codes)) {
        void *record = NULL;
        if (code_extra_get((PyObject *)code, extra_index, &record) < 0)
            PyErr_Clear();
        return record;
    }
    CodeExtra *extra = code->co_extra;
    return extra && extra->size > extra_index ? extra->extras[extra_index] : NULL;
}

static CodeRecord *make_record(PyObject *code)
{
    CodeRecord *record = code_record((PyCodeObject *)code);
    if (record)
        return record;
    record = PyMem_RawCalloc(1, sizeof(CodeRecord));
    if (record == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (code_extra_set(code, extra_index, record) < 0) {
        PyMem_RawFree(record);
        return NULL;
    }
    return record;
}

/* Called when the code object dies, and with NULL too. A cache keeps its code object alive, so there is none to
 * tell. */
static void free_record(void *record)
{
    PyMem_RawFree(record);
}

int code_decision(PyCodeObject *code, CodeRecord *record)
{
    (void)code;
    if (record == NULL)
        return CODE_UNDECIDED;
    return record->decision == CODE_NEVER || record->generation == generation ? record->decision : CODE_UNDECIDED;
}

int code_decide(PyObject *code, int decision)
{
    CodeRecord *record = make_record(code);
    if (record == NULL)
        return -1;
    record->decision = decision;
    record->generation = generation;
    return 0;
}

PyObject *code_cache_make(PyObject *code, PyObject *options)
{
    CodeRecord *record = make_record(code);
    if (record == NULL)
        return NULL;
    if (record->cache)
        return Py_NewRef((PyObject *)record->cache);
    EntryCache *cache = (EntryCache *)EntryCache_Type.tp_alloc(&EntryCache_Type, 0);
    if (cache == NULL)
        return NULL;
    cache->next = cache->previous = cache;
    if (cache_setup(cache, code, options) < 0) {
        Py_DECREF(cache);
        return NULL;
    }
    if (record->cache) {                  /* the collector ran above, and in it some code that was captured */
        Py_DECREF(cache);
        return Py_NewRef((PyObject *)record->cache);
    }
    cache->next = ring.next;
    cache->previous = &ring;
    ring.next->previous = cache;
    ring.next = cache;
    record->cache = cache;
    return (PyObject *)cache;
}

void code_cache_forget(EntryCache *cache)
{
    CodeRecord *record = cache->code ? code_record((PyCodeObject *)cache->code) : NULL;
    if (record && record->cache == cache)
        record->cache = NULL;
    if (cache->next) {
        cache->next->previous = cache->previous;
        cache->previous->next = cache->next;
        cache->next = cache->previous = NULL;
    }
}

int code_layout_holds(PyObject *code)
{
    void *record;
    CodeExtra copy, *extra;
    int holds = fj_layout.codes;
    fj_layout.codes = 0;
    int failed = make_record(code) == NULL || code_extra_get(code, extra_index, &record) < 0;
    fj_layout.codes = holds;
    if (failed)
        return -1;
    extra = ((PyCodeObject *)code)->co_extra;
    if (!safe_read(extra, &copy, sizeof(copy)) || copy.size <= extra_index || copy.size > 256)
        return 0;
    void *found;
    return safe_read(&extra->extras[extra_index], &found, sizeof(found)) && found == record;
}

/* ---- Python functions ---- */
static int need_code(PyObject *code)
{
    if (PyCode_Check(code))
        return 0;
    PyErr_Format(PyExc_TypeError, "a code object is needed, not %.100s", Py_TYPE(code)->tp_name);
    return -1;
}

static PyObject *code_cache(PyObject *module, PyObject *code)
{
    (void)module;
    if (need_code(code) < 0)
        return NULL;
    CodeRecord *record = code_record((PyCodeObject *)code);
    return Py_NewRef(record && record->cache ? (PyObject *)record->cache : Py_None);
}

static PyObject *skip_code(PyObject *module, PyObject *code)
{
    (void)module;
    if (need_code(code) < 0 || code_decide(code, CODE_NEVER) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Detached from its code object, the cache is what its owners still hold: an empty shell that goes with them. */
static int drop_cache(EntryCache *cache)
{
    Py_INCREF(cache);
    code_cache_forget(cache);
    PyObject *done = PyObject_CallMethod((PyObject *)cache, "clear", NULL);
    Py_XDECREF(done);
    Py_DECREF(cache);
    return done ? 0 : -1;
}

static PyObject *reset_code(PyObject *module, PyObject *code)
{
    (void)module;
    if (need_code(code) < 0)
        return NULL;
    CodeRecord *record = code_record((PyCodeObject *)code);
    if (record) {
        record->decision = CODE_UNDECIDED;
        if (record->cache && drop_cache(record->cache) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *reset_all_codes(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    generation++;
    while (ring.next != &ring)            /* emptying one may run code that frees or makes others */
        if (drop_cache(ring.next) < 0)
            return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"code_cache", code_cache, METH_O,
     "code_cache(code) -> EntryCache | None: what the frame hook has captured of this code."},
    {"skip_code", skip_code, METH_O, "skip_code(code): never capture frames of this code."},
    {"reset_code", reset_code, METH_O, "reset_code(code): forget its entries and what was decided about it."},
    {"reset_all_codes", reset_all_codes, METH_NOARGS,
     "reset_all_codes(): forget the entries of every code object, and every decision but skip_code's."},
    {NULL, NULL, 0, NULL},
};

int code_record_init(PyObject *module)
{
    ring.next = ring.previous = &ring;
    extra_index = code_extra_index(free_record);
    if (extra_index < 0) {
        PyErr_SetString(PyExc_ImportError, "framejit: no room left for per-code data in this interpreter");
        return -1;
    }
    return PyModule_AddFunctions(module, methods);
}
