/* Looks into the cache of a functools.lru_cache without using it: a call would count as a hit or a miss, move the
 * result to the front, and may run the user's function. What the cache is to keep is put in by a call for which another
 * function stands in. */
#include "native.h"

/* The structs of CPython's Modules/_functoolsmodule.c, which are the same in 3.11 to 3.15 and in no header. */
typedef struct Link {
    PyObject_HEAD
    struct Link *prev, *next;
    Py_hash_t hash;
    PyObject *key, *result;
} Link;

typedef struct {
    Link root;
    void *wrapper;
    int typed;
    PyObject *cache;              /* of results, or, when their number is bounded, of links that hold them */
    Py_ssize_t hits;
    PyObject *func;
    Py_ssize_t maxsize, misses;   /* maxsize -1: unbounded */
    PyObject *keyword_mark;
    PyTypeObject *link_type, *cache_info_type;
    PyObject *dict, *weakrefs;
} LruCache;

static PyTypeObject *lru_cache_type;

/* The object as what it is, or NULL with TypeError. */
static LruCache *as_lru_cache(PyObject *object)
{
    LruCache *self = (LruCache *)object;
    if (lru_cache_type && Py_IS_TYPE(object, lru_cache_type) && PyDict_CheckExact(self->cache)
        && (self->maxsize <= 0 || self->link_type->tp_basicsize == sizeof(Link)))
        return self;
    PyErr_Format(PyExc_TypeError, "%.100s is no functools.lru_cache that framejit can read", Py_TYPE(object)->tp_name);
    return NULL;
}

/* New reference; NULL without an exception where there is no result for the key. */
static PyObject *find_result(LruCache *self, PyObject *key)
{
    PyObject *found = PyDict_GetItemWithError(self->cache, key);
    if (found && self->maxsize > 0)
        found = Py_IS_TYPE(found, self->link_type) ? ((Link *)found)->result : NULL;
    return Py_XNewRef(found);
}

static PyObject *lru_cache_settings(PyObject *module, PyObject *object)
{
    LruCache *self = as_lru_cache(object);
    if (self == NULL)
        return NULL;
    return Py_BuildValue("(OOOnn)", self->func, self->typed ? Py_True : Py_False, self->keyword_mark, self->maxsize,
        PyDict_GET_SIZE(self->cache));
}

static PyObject *lru_cache_result(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    LruCache *self = NULL;
    if (nargs != 2)
        PyErr_SetString(PyExc_TypeError, "lru_cache_result() takes a key and a cached function");
    else
        self = as_lru_cache(args[1]);
    PyObject *result = self ? find_result(self, args[0]) : NULL;
    if (result == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_KeyError, "the cache has no result for these arguments");
    return result;
}

static PyObject *lru_cache_admits(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    LruCache *self = NULL;
    Py_ssize_t more = nargs == 4 ? PyLong_AsSsize_t(args[2]) : -1;
    if (more >= 0)
        self = as_lru_cache(args[3]);
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "lru_cache_admits() takes a key, a result, a number and a cached function");
    PyObject *found = self ? find_result(self, args[0]) : NULL;
    if (PyErr_Occurred())
        return NULL;
    if (found == NULL)
        return PyBool_FromLong(self->maxsize < 0 || PyDict_GET_SIZE(self->cache) + more <= self->maxsize);
    int equal = constant_equal(args[1], found);
    Py_DECREF(found);
    return equal < 0 ? NULL : PyBool_FromLong(equal);
}

static PyObject *lru_cache_exchange(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    LruCache *self = NULL;
    if (nargs != 2 || !PyCallable_Check(args[1]))
        PyErr_SetString(PyExc_TypeError, "lru_cache_exchange() takes a cached function and a function");
    else
        self = as_lru_cache(args[0]);
    if (self == NULL)
        return NULL;
    PyObject *before = self->func;
    self->func = Py_NewRef(args[1]);
    return before;
}

static PyMethodDef methods[] = {
    {"lru_cache_settings", lru_cache_settings, METH_O,
     "lru_cache_settings(cached) -> (function, typed, the mark before keywords in keys, maxsize or -1, number of "
     "results)."},
    {"lru_cache_result", (PyCFunction)(void *)lru_cache_result, METH_FASTCALL,
     "lru_cache_result(key, cached): the result in the cache; KeyError without one. Does not count as a use."},
    {"lru_cache_admits", (PyCFunction)(void *)lru_cache_admits, METH_FASTCALL,
     "lru_cache_admits(key, constant, more, cached) -> bool: the result in the cache is that constant, or there is "
     "none, and room for `more` results."},
    {"lru_cache_exchange", (PyCFunction)(void *)lru_cache_exchange, METH_FASTCALL,
     "lru_cache_exchange(cached, function): from now on it calls this function; returns the one before."},
    {NULL, NULL, 0, NULL},
};

int lru_cache_init(PyObject *module)
{
    PyObject *functools = PyImport_ImportModule("functools"),
        *type = functools ? PyObject_GetAttrString(functools, "_lru_cache_wrapper") : NULL;
    Py_XDECREF(functools);
    if (type == NULL)
        return -1;
    /* an interpreter whose functools is written in Python, or in another way, has caches that nobody reads */
    if (PyType_Check(type) && ((PyTypeObject *)type)->tp_basicsize == sizeof(LruCache))
        lru_cache_type = (PyTypeObject *)Py_NewRef(type);
    Py_DECREF(type);
    return PyModule_AddFunctions(module, methods);
}
