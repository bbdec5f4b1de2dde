/* EntryCache: the entries known for one piece of code. The base of Dispatcher, and by itself what the frame hook keeps
 * for a code object. */
#include "native.h"

/* ---- lookup ---- */
static void move_to_front(EntryCache *cache, PyObject *entries, Py_ssize_t i)
{
    if (cache->entries != entries)
        return;                           /* changed meanwhile */
    Py_ssize_t n = PyTuple_GET_SIZE(entries);
    PyObject *moved = PyTuple_New(n);
    if (moved == NULL) {
        PyErr_Clear();
        return;
    }
    PyTuple_SET_ITEM(moved, 0, Py_NewRef(PyTuple_GET_ITEM(entries, i)));
    for (Py_ssize_t from = 0, to = 1; from < n; from++)
        if (from != i)
            PyTuple_SET_ITEM(moved, to++, Py_NewRef(PyTuple_GET_ITEM(entries, from)));
    Py_SETREF(cache->entries, moved);
}

Entry *cache_find(EntryCache *cache, PyObject *const *args, Py_ssize_t nargs, PyObject *fn)
{
    PyObject *entries = cache->entries;
    if (FJ_UNLIKELY(entries == NULL))
        return NULL;
    Py_INCREF(entries);                   /* a guard may run code that empties the cache */
    Entry *found = NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(entries);
    for (Py_ssize_t i = 0; i < n; i++) {
        Entry *entry = (Entry *)PyTuple_GET_ITEM(entries, i);
        if (!entry->valid || !guard_tree_passes((GuardTree *)entry->guards, args, nargs, fn, NULL))
            continue;
        found = (Entry *)Py_NewRef((PyObject *)entry);
        entry->hits++;
        cache->hits++;
        if (i > 0) {
            /* two late hits in a row make it worth its price; calls that alternate between entries leave the order
               alone */
            if (cache->last_late_hit == entry)
                move_to_front(cache, entries, i);
            cache->last_late_hit = entry;
        }
        break;
    }
    Py_DECREF(entries);
    return found;
}

/* ---- changing the list ---- */
static int add_entry(EntryCache *cache, PyObject *entry)
{
    Py_ssize_t n = cache->entries ? PyTuple_GET_SIZE(cache->entries) : 0;
    PyObject *longer = PyTuple_New(n + 1);
    if (longer == NULL)
        return -1;
    /* making the tuple may have run the collector, and with it code that changed the list */
    if ((cache->entries ? PyTuple_GET_SIZE(cache->entries) : 0) != n) {
        Py_DECREF(longer);
        return add_entry(cache, entry);
    }
    for (Py_ssize_t i = 0; i < n; i++)
        PyTuple_SET_ITEM(longer, i, Py_NewRef(PyTuple_GET_ITEM(cache->entries, i)));
    PyTuple_SET_ITEM(longer, n, Py_NewRef(entry));
    Py_XSETREF(cache->entries, longer);
    return 0;
}

/* Keeps the entries for which keep() holds. */
static int filter_entries(EntryCache *cache, int (*keep)(PyObject *entry, PyObject *arg), PyObject *arg, int *removed)
{
    PyObject *old = cache->entries ? Py_NewRef(cache->entries) : PyTuple_New(0);
    PyObject *kept = old ? PyList_New(0) : NULL;
    *removed = 0;
    for (Py_ssize_t i = 0; kept && i < PyTuple_GET_SIZE(old); i++) {
        PyObject *entry = PyTuple_GET_ITEM(old, i);
        if (!keep(entry, arg))
            ++*removed;
        else if (PyList_Append(kept, entry) < 0)
            Py_CLEAR(kept);
    }
    PyObject *shorter = kept && *removed ? PyList_AsTuple(kept) : NULL;
    int bad = kept == NULL || (*removed && shorter == NULL);
    if (shorter && cache->entries == old)
        Py_SETREF(cache->entries, shorter);
    else
        Py_XDECREF(shorter);
    Py_XDECREF(kept);
    Py_XDECREF(old);
    return bad ? -1 : 0;
}

static int is_not(PyObject *entry, PyObject *other) { return entry != other; }
static int can_still_match(PyObject *entry, PyObject *unused)
{
    (void)unused;
    return ((Entry *)entry)->valid && !guard_tree_expired((GuardTree *)((Entry *)entry)->guards);
}

/* ---- a miss ---- */
/* What on_miss answered: a strong Entry, None, or NULL with an exception. */
PyObject *cache_miss(EntryCache *cache, PyObject *on_miss, PyObject *fn, PyObject *const *args, Py_ssize_t nargs)
{
    int removed;
    cache->misses++;
    if (filter_entries(cache, can_still_match, NULL, &removed) < 0)
        return NULL;
    PyObject *flat = PyTuple_New(nargs);
    if (flat == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < nargs; i++)
        PyTuple_SET_ITEM(flat, i, Py_NewRef(args[i]));
    PyObject *call[] = {(PyObject *)cache, fn, flat};
    PyThreadState *ts = PyThreadState_Get();
    fj_busy++;
    PyThreadState_EnterTracing(ts);       /* debuggers and profilers see the program, not its compiler */
    PyObject *answer = PyObject_Vectorcall(on_miss, call, 3, NULL);
    PyThreadState_LeaveTracing(ts);
    fj_busy--;
    Py_DECREF(flat);
    if (answer && answer != Py_None && !Py_IS_TYPE(answer, &Entry_Type)) {
        PyErr_Format(PyExc_TypeError, "on_miss returned %.100s, not an Entry or None", Py_TYPE(answer)->tp_name);
        Py_CLEAR(answer);
    }
    else if (answer && answer != Py_None && ((PyCodeObject *)((Entry *)answer)->code)->co_argcount != nargs) {
        PyErr_Format(PyExc_ValueError, "the replacement takes %d arguments, the frame has %zd",
                     ((PyCodeObject *)((Entry *)answer)->code)->co_argcount, nargs);
        Py_CLEAR(answer);
    }
    return answer;
}

/* ---- ownership ---- */
int cache_setup(EntryCache *cache, PyObject *code, PyObject *options)
{
    cache->entries = PyTuple_New(0);
    cache->code = Py_XNewRef(code);
    cache->options = Py_NewRef(options);
    return cache->entries ? 0 : -1;
}

int cache_adopt(EntryCache *parent, PyObject *child)
{
    if ((PyObject *)parent == child)
        return 0;
    if (parent->children == NULL && (parent->children = PySet_New(NULL)) == NULL)
        return -1;
    return PySet_Add(parent->children, child);
}

int cache_traverse(EntryCache *cache, visitproc visit, void *arg)
{
    Py_VISIT(cache->entries);
    Py_VISIT(cache->options);
    Py_VISIT(cache->raising);
    Py_VISIT(cache->resume_points);
    Py_VISIT(cache->children);
    return 0;
}

int cache_clear(EntryCache *cache)
{
    Py_CLEAR(cache->entries);
    Py_CLEAR(cache->options);
    Py_CLEAR(cache->raising);
    Py_CLEAR(cache->resume_points);
    Py_CLEAR(cache->children);
    return 0;
}

static int base_traverse(PyObject *self, visitproc visit, void *arg)
{
    return cache_traverse((EntryCache *)self, visit, arg);
}
static int base_clear(PyObject *self) { return cache_clear((EntryCache *)self); }

static void base_dealloc(PyObject *self)
{
    EntryCache *cache = (EntryCache *)self;
    PyObject_GC_UnTrack(self);
    if (cache->weakrefs)
        PyObject_ClearWeakRefs(self);
    code_cache_forget(cache);
    cache_clear(cache);
    Py_CLEAR(cache->code);
    Py_TYPE(self)->tp_free(self);
}

/* ---- Python methods ---- */
static PyObject *method_add(PyObject *self, PyObject *entry)
{
    EntryCache *cache = (EntryCache *)self;
    if (!Py_IS_TYPE(entry, &Entry_Type)) {
        PyErr_SetString(PyExc_TypeError, "add_entry takes an Entry");
        return NULL;
    }
    int expected = count_arg_slots((PyCodeObject *)cache->code),
        given = ((PyCodeObject *)((Entry *)entry)->code)->co_argcount;
    if (given != expected) {
        PyErr_Format(PyExc_ValueError, "the replacement takes %d arguments, the function has %d argument slots", given,
            expected);
        return NULL;
    }
    if (add_entry(cache, entry) < 0)
        return NULL;
    /* the frame hook runs the code in frames of the program's own functions */
    if (!PyObject_TypeCheck(self, &Dispatcher_Type))
        Py_CLEAR(((Entry *)entry)->function);               /* which was made with the cells of one of them */
    Py_RETURN_NONE;
}

static PyObject *method_remove(PyObject *self, PyObject *entry)
{
    int removed;
    if (filter_entries((EntryCache *)self, is_not, entry, &removed) < 0)
        return NULL;
    if (!removed) {
        PyErr_SetString(PyExc_ValueError, "no such entry");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *method_clear(PyObject *self, PyObject *unused)
{
    (void)unused;
    EntryCache *cache = (EntryCache *)self;
    PyObject *empty = PyTuple_New(0), *children = cache->children;
    if (empty == NULL)
        return NULL;
    cache->children = NULL;
    cache->last_late_hit = NULL;
    Py_XSETREF(cache->entries, empty);
    Py_XDECREF(children);
    Py_RETURN_NONE;
}

static PyObject *get_entries(PyObject *self, void *closure)
{
    (void)closure;
    EntryCache *cache = (EntryCache *)self;
    return cache->entries ? Py_NewRef(cache->entries) : PyTuple_New(0);
}

static PyMethodDef base_methods[] = {
    {"add_entry", method_add, METH_O, "add_entry(entry): consider it in later calls, after the others."},
    {"remove_entry", method_remove, METH_O, "remove_entry(entry): forget it; ValueError if it is not there."},
    {"clear", method_clear, METH_NOARGS, "clear(): forget all entries. Runs in progress finish undisturbed."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef base_members[] = {
    {"options", T_OBJECT, offsetof(EntryCache, options), 0, "Whatever the maker attached."},
    {"raising", T_OBJECT, offsetof(EntryCache, raising), 0, "Places at which graphs raised, if any did."},
    {"resume_points", T_OBJECT, offsetof(EntryCache, resume_points), 0, "Of a resume function: those of its frame."},
    {"code", T_OBJECT, offsetof(EntryCache, code), READONLY, "The code object whose argument slots the entries take."},
    {"hits", T_ULONGLONG, offsetof(EntryCache, hits), READONLY, "Calls served by an entry found here."},
    {"misses", T_ULONGLONG, offsetof(EntryCache, misses), READONLY, "Calls for which on_miss was asked."},
    {"python_ns", T_LONGLONG, offsetof(EntryCache, python_ns), READONLY,
     "Nanoseconds that frames which the hook met ran as they are, since no entry fitted them."},
    {"skip", T_BOOL, offsetof(EntryCache, skip), 0, "When true every call runs the original function."},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef base_getset[] = {
    {"entries", get_entries, NULL, "The entries, in the order in which they are tried.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject EntryCache_Type = {
    TYPE_OF(EntryCache),
    .tp_doc = "The entries known for one code object.",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    COLLECTED(base),
    .tp_methods = base_methods,
    .tp_members = base_members,
    .tp_getset = base_getset,
    .tp_weaklistoffset = offsetof(EntryCache, weakrefs),
};

int entry_cache_init(PyObject *module)
{
    return PyModule_AddType(module, &EntryCache_Type);
}
