/* Dispatcher: the callable that stands for an optimised function. It finds the entry whose guards hold for the
 * arguments of the call and runs it without ever pushing the function's own frame. */
#include "native.h"
#include "dispatch/entry_run.h"

typedef struct {
    EntryCache cache;
    vectorcallfunc vectorcall;
    PyObject *fn, *on_miss;
    /* of a dispatcher that stands for calls of an object: what its class has as __call__, as of which version, and what
     * gives the callable for another one; else NULL */
    PyObject *called, *follow;
    unsigned int called_version;
    Py_ssize_t plain_nargs;  /* a call with just so many positional arguments is bound already; -1: none is */
    int n_slots;
} Dispatcher;

static PyObject *module_dict;             /* borrowed for good: the module is never unloaded */
static PyObject *name_call;
enum { STACK_SLOTS = 16 };

/* ---- calling ---- */
static FJ_APART PyObject *call_original(Dispatcher *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *fn = self->fn;
    if (FJ_UNLIKELY(fn == NULL)) {
        PyErr_SetString(PyExc_RuntimeError, "this dispatcher was cleared by the garbage collector");
        return NULL;
    }
    Py_INCREF(fn);
    PyObject *passing = fj_scope.passing;
    /* its frame was considered here: nothing is left for the hook */
    fj_scope.passing = ((PyFunctionObject *)fn)->func_code;
    PyObject *result = call_taking_over(fn, args, nargsf, kwnames);
    fj_scope.passing = passing;
    Py_DECREF(fn);
    return result;
}

static void read_signature(Dispatcher *self)
{
    PyCodeObject *code = (PyCodeObject *)self->cache.code;
    int plain = code->co_kwonlyargcount == 0 && !(code->co_flags & (CO_VARARGS | CO_VARKEYWORDS));
    self->plain_nargs = plain ? code->co_argcount : -1;
    self->n_slots = count_arg_slots(code);
}

/* The user assigned fn.__code__: what was compiled belongs to the old one. */
static int follow_code(Dispatcher *self)
{
    PyObject *empty = PyTuple_New(0);
    if (empty == NULL)
        return -1;
    Py_XSETREF(self->cache.entries, empty);
    Py_XSETREF(self->cache.code, Py_NewRef(((PyFunctionObject *)self->fn)->func_code));
    read_signature(self);
    return 0;
}

static inline PyObject *run_entry(Dispatcher *self, Entry *entry, PyObject *const *args, size_t nargsf)
{
    EntryCache *owner = fj_scope.owner;
    fj_scope.owner = &self->cache;        /* borrowed: whoever called us holds us */
    PyObject *result = entry_run(entry, args, nargsf);
    fj_scope.owner = owner;
    Py_DECREF(entry);
    return result;
}

static FJ_APART PyObject *miss(Dispatcher *self, PyObject *const *flat, PyObject *const *args, size_t nargsf,
    PyObject *kwnames)
{
    PyObject *fn = Py_NewRef(self->fn), *on_miss = Py_NewRef(self->on_miss);
    PyObject *code = Py_NewRef(self->cache.code);
    PyObject *answer = cache_miss(&self->cache, on_miss, fn, flat, self->n_slots);
    Py_DECREF(fn);
    Py_DECREF(on_miss);
    int current = self->cache.code == code;
    Py_DECREF(code);
    if (answer == NULL && PyErr_ExceptionMatches(PyExc_RecursionError)) {
        PyErr_Clear();                    /* the program is deep, capturing goes deeper: the function may still fit */
        return call_original(self, args, nargsf, kwnames);
    }
    if (answer == NULL)
        return NULL;
    if (answer == Py_None || !current) {
        Py_DECREF(answer);
        return call_original(self, args, nargsf, kwnames);
    }
    return run_entry(self, (Entry *)answer, flat, (size_t)self->n_slots);
}

static FJ_APART PyObject *dispatch_bound_slowly(Dispatcher *self, PyObject *const *args, size_t nargsf,
    PyObject *kwnames)
{
    PyObject *stack[STACK_SLOTS], **flat = stack, *result;
    int n = self->n_slots;
    if (n > STACK_SLOTS && (flat = PyMem_Malloc(n * sizeof(PyObject *))) == NULL)
        return PyErr_NoMemory();
    if (bind_arguments((PyFunctionObject *)self->fn, args, PyVectorcall_NARGS(nargsf), kwnames, flat) < 0)
        result = call_original(self, args, nargsf, kwnames);
    else {
        Entry *entry = cache_find(&self->cache, flat, n, self->fn);
        result = entry ? run_entry(self, entry, flat, (size_t)n) : miss(self, flat, args, nargsf, kwnames);
        for (int i = 0; i < n; i++)
            Py_DECREF(flat[i]);
    }
    if (flat != stack)
        PyMem_Free(flat);
    return result;
}

static inline __attribute__((always_inline)) PyObject *call_once(PyObject *obj, PyObject *const *args, size_t nargsf,
    PyObject *kwnames)
{
    Dispatcher *self = (Dispatcher *)obj;
    if (FJ_UNLIKELY(fj_disabled | fj_busy | self->cache.skip | (self->fn == NULL)))
        return call_original(self, args, nargsf, kwnames);
    if (FJ_UNLIKELY(((PyFunctionObject *)self->fn)->func_code != self->cache.code) && follow_code(self) < 0)
        return NULL;
    if (FJ_UNLIKELY(kwnames != NULL || PyVectorcall_NARGS(nargsf) != self->plain_nargs))
        return dispatch_bound_slowly(self, args, nargsf, kwnames);
    Entry *entry = cache_find(&self->cache, args, self->plain_nargs, self->fn);
    return FJ_LIKELY(entry != NULL) ? run_entry(self, entry, args, nargsf) : miss(self, args, args, nargsf, kwnames);
}

PyObject *dispatcher_call_once(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return call_once(self, args, nargsf, kwnames);
}

static PyObject *dispatcher_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return finish_call(call_once(self, args, nargsf, kwnames));
}

/* The class of the object has, or is, another by now. */
static FJ_APART PyObject *call_followed(Dispatcher *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *follow = Py_NewRef(self->follow);
    PyObject *callable = PyObject_CallOneArg(follow, (PyObject *)Py_TYPE(args[0]));
    Py_DECREF(follow);
    if (callable == NULL)
        return NULL;
    PyObject *result = PyObject_Vectorcall(callable, args, nargsf, kwnames);
    Py_DECREF(callable);
    return result;
}

/* A dispatcher that stands for an object: the first argument. */
static PyObject *dispatcher_call_object(PyObject *obj, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Dispatcher *self = (Dispatcher *)obj;
    if (FJ_LIKELY(PyVectorcall_NARGS(nargsf) > 0 && self->called != NULL)) {
        PyTypeObject *type = Py_TYPE(args[0]);
        if (FJ_UNLIKELY(type->tp_version_tag == 0 || type->tp_version_tag != self->called_version)) {
            if (_PyType_Lookup(type, name_call) != self->called)
                return call_followed(self, args, nargsf, kwnames);
            self->called_version = type->tp_version_tag;
        }
    }
    return dispatcher_call(obj, args, nargsf, kwnames);
}

/* ---- construction and destruction ---- */
static PyObject *dispatcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", "on_miss", "options", "of", "follow", NULL};
    PyObject *fn, *on_miss, *options = Py_None, *cls = NULL, *follow = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|OO!O:Dispatcher", names, &PyFunction_Type, &fn, &on_miss,
        &options, &PyType_Type, &cls, &follow))
        return NULL;
    if (!PyCallable_Check(on_miss)) {
        PyErr_SetString(PyExc_TypeError, "on_miss is not callable");
        return NULL;
    }
    Dispatcher *self = (Dispatcher *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->fn = Py_NewRef(fn);
    self->on_miss = Py_NewRef(on_miss);
    self->vectorcall = dispatcher_call;
    if (cls != NULL && follow != NULL) {
        self->called = Py_XNewRef(_PyType_Lookup((PyTypeObject *)cls, name_call));
        self->follow = Py_NewRef(follow);
        self->vectorcall = dispatcher_call_object;
    }
    if (cache_setup(&self->cache, ((PyFunctionObject *)fn)->func_code, options) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    read_signature(self);
    return (PyObject *)self;
}

static int dispatcher_traverse(PyObject *obj, visitproc visit, void *arg)
{
    Dispatcher *self = (Dispatcher *)obj;
    Py_VISIT(self->fn);
    Py_VISIT(self->on_miss);
    Py_VISIT(self->called);
    Py_VISIT(self->follow);
    return cache_traverse(&self->cache, visit, arg);
}

static int dispatcher_clear(PyObject *obj)
{
    Dispatcher *self = (Dispatcher *)obj;
    Py_CLEAR(self->fn);
    Py_CLEAR(self->on_miss);
    Py_CLEAR(self->called);
    Py_CLEAR(self->follow);
    return cache_clear(&self->cache);
}

static void dispatcher_dealloc(PyObject *obj)
{
    Dispatcher *self = (Dispatcher *)obj;
    PyObject_GC_UnTrack(obj);
    /* an entry may hold a resume dispatcher, whose entry holds another, and so on: bound the C stack */
    Py_TRASHCAN_BEGIN(obj, dispatcher_dealloc)
    if (self->cache.weakrefs)
        PyObject_ClearWeakRefs(obj);
    dispatcher_clear(obj);
    Py_CLEAR(self->cache.code);
    Py_TYPE(obj)->tp_free(obj);
    Py_TRASHCAN_END
}

/* ---- behaving like the function ---- */
static PyObject *dispatcher_bind(PyObject *self, PyObject *obj, PyObject *type)
{
    (void)type;
    if (obj == NULL || obj == Py_None)
        return Py_NewRef(self);
    return PyMethod_New(self, obj);
}

/* Names the dispatcher does not know are the function's, to read and to write: __name__, __defaults__, and what the
 * program keeps in it, such as a count of calls. So whoever has the function itself, as captured code does, finds the
 * same. */
static PyObject *dispatcher_getattro(PyObject *obj, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr(obj, name), *fn = ((Dispatcher *)obj)->fn;
    if (value == NULL && fn && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        value = PyObject_GetAttr(fn, name);
    }
    return value;
}

static int dispatcher_setattro(PyObject *obj, PyObject *name, PyObject *value)
{
    PyObject *own = _PyType_Lookup(Py_TYPE(obj), name), *fn = ((Dispatcher *)obj)->fn;
    if (fn == NULL || (own && Py_TYPE(own)->tp_descr_set))
        return PyObject_GenericSetAttr(obj, name, value);
    return PyObject_SetAttr(fn, name, value);
}

/* These names the type itself has too, so that the fall-through above would never be reached. */
static PyObject *get_from_function(PyObject *obj, void *name)
{
    PyObject *fn = ((Dispatcher *)obj)->fn;
    if (fn == NULL)
        Py_RETURN_NONE;
    return PyObject_GetAttrString(fn, name);
}

static int set_on_function(PyObject *obj, PyObject *value, void *name)
{
    PyObject *fn = ((Dispatcher *)obj)->fn;
    if (fn == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this dispatcher was cleared by the garbage collector");
        return -1;
    }
    return PyObject_SetAttrString(fn, name, value);
}

/* What the program has wrapped, if the function says so; else the function. */
static PyObject *get_wrapped(PyObject *obj, void *name)
{
    PyObject *value = get_from_function(obj, name);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        value = Py_NewRef(((Dispatcher *)obj)->fn);
    }
    return value;
}

static PyObject *dispatcher_repr(PyObject *obj)
{
    PyObject *fn = ((Dispatcher *)obj)->fn;
    return fn ? PyUnicode_FromFormat("<framejit %R>", fn) : PyUnicode_FromString("<framejit cleared dispatcher>");
}

static PyObject *dispatcher_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    PyObject *hook = PyDict_GetItemString(module_dict, "_reduce_hook");
    if (hook == NULL) {
        PyErr_SetString(PyExc_TypeError, "cannot pickle a dispatcher");
        return NULL;
    }
    return PyObject_CallOneArg(hook, self);
}

static PyObject *dispatcher_lookup(PyObject *obj, PyObject *flat)
{
    Dispatcher *self = (Dispatcher *)obj;
    if (!PyTuple_Check(flat)) {
        PyErr_SetString(PyExc_TypeError, "lookup takes a tuple with one value for each argument slot");
        return NULL;
    }
    if (self->fn == NULL)
        Py_RETURN_NONE;
    unsigned long long hits = self->cache.hits;
    Entry *entry = cache_find(&self->cache, ((PyTupleObject *)flat)->ob_item, PyTuple_GET_SIZE(flat), self->fn);
    if (entry == NULL)
        Py_RETURN_NONE;
    self->cache.hits = hits;              /* looking is not calling */
    entry->hits--;
    return (PyObject *)entry;
}

/* isinstance() takes a dispatcher for a function, as which it is called, bound and looked into: torch.fx traces nothing
 * else. type() tells them apart. */
static PyObject *dispatcher_class(PyObject *self, void *unused)
{
    (void)self, (void)unused;
    return Py_NewRef((PyObject *)&PyFunction_Type);
}

/* What a class makes of functions with these names in its body. */
static PyObject *dispatcher_set_name(PyObject *self, PyObject *args)
{
    PyObject *owner, *name, *method;
    if (!PyArg_ParseTuple(args, "OU:__set_name__", &owner, &name))
        return NULL;
    if (PyUnicode_CompareWithASCIIString(name, "__new__") == 0)
        method = PyStaticMethod_New(self);
    else if (PyUnicode_CompareWithASCIIString(name, "__init_subclass__") == 0
        || PyUnicode_CompareWithASCIIString(name, "__class_getitem__") == 0)
        method = PyClassMethod_New(self);
    else
        Py_RETURN_NONE;
    int bad = method == NULL || PyObject_SetAttr(owner, name, method) < 0;
    Py_XDECREF(method);
    return bad ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef dispatcher_methods[] = {
    {"__set_name__", dispatcher_set_name, METH_VARARGS, NULL},
    {"lookup", dispatcher_lookup, METH_O,
     "lookup(flat_args) -> Entry | None: the entry a call with these values would run."},
    {"__reduce__", dispatcher_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef dispatcher_members[] = {
    {"function", T_OBJECT, offsetof(Dispatcher, fn), READONLY, "The original function."},
    {"on_miss", T_OBJECT, offsetof(Dispatcher, on_miss), READONLY, "Asked for an entry when none matches."},
    {"follow", T_OBJECT, offsetof(Dispatcher, follow), READONLY, "Of one for calls of an object; else None."},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef dispatcher_getset[] = {
    {"__class__", dispatcher_class, NULL, NULL, NULL},
    {"__dict__", get_from_function, set_on_function, NULL, "__dict__"},
    {"__doc__", get_from_function, set_on_function, NULL, "__doc__"},
    {"__module__", get_from_function, set_on_function, NULL, "__module__"},
    {"__wrapped__", get_wrapped, set_on_function, NULL, "__wrapped__"},
    {NULL, NULL, NULL, NULL, NULL},
};
PyTypeObject Dispatcher_Type = {
    TYPE_OF(Dispatcher),
    .tp_base = &EntryCache_Type,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = dispatcher_new,
    COLLECTED(dispatcher),
    .tp_repr = dispatcher_repr,
    CALLED_BY_VECTOR(Dispatcher),
    .tp_getattro = dispatcher_getattro,
    .tp_setattro = dispatcher_setattro,
    .tp_descr_get = dispatcher_bind,
    .tp_methods = dispatcher_methods,
    .tp_members = dispatcher_members,
    .tp_getset = dispatcher_getset,
};

int dispatcher_init(PyObject *module)
{
    module_dict = PyModule_GetDict(module);
    name_call = PyUnicode_InternFromString("__call__");
    return name_call == NULL ? -1 : PyModule_AddType(module, &Dispatcher_Type);
}
