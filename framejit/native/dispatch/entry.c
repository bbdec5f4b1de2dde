/* Entry: replacement code and the guards under which it may run. Slot: what that code calls. TailCall: how it continues
 * elsewhere. */
#include "native.h"
#include "dispatch/entry_run.h"

enum { SLOT_VALUE, SLOT_TAIL };

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *target;                     /* NULL once the entry that owned the slot is gone */
    int kind;
    char owned;                           /* an entry visits the target on the slot's behalf */
} Slot;

/* ---- signals ----
   What was computed and not yet written into the program's objects would be lost, were an exception raised between a
   graph and what is done behind it; and on the way from one part of a frame to the next no try or with block is entered.
   So a handler that raises is heard behind that: where the program goes on. All that compiled code and steps call looks
   for signals itself, so that the interpreter finds none behind the call. */

/* The error that is set, as an object, no longer set. */
static PyObject *take_error(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback)
        PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
#endif
}

/* Takes over the reference. The last to come is raised, and has those before as its context. */
static void have_wait(PyObject *error)
{
    if (fj_scope.waiting)
        PyException_SetContext(error, fj_scope.waiting);
    fj_scope.waiting = error;
}

static inline void have_signals_wait(void)
{
    if (FJ_UNLIKELY(PyErr_CheckSignals() < 0))
        have_wait(take_error());
}

PyObject *raise_waiting(PyObject *result)
{
    PyObject *error = fj_scope.waiting, *other = result ? NULL : take_error();
    fj_scope.waiting = NULL;
    Py_XDECREF(result);
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    if (other && other != error)
        PyException_SetContext(error, Py_NewRef(other));
    Py_XDECREF(other);
    Py_DECREF(error);
    return NULL;
}

static PyObject *raise_later(PyObject *module, PyObject *error)
{
    (void)module;
    if (!PyExceptionInstance_Check(error)) {
        PyErr_SetString(PyExc_TypeError, "raise_later takes an exception");
        return NULL;
    }
    int is_first = fj_scope.waiting == NULL;
    have_wait(Py_NewRef(error));
    return PyBool_FromLong(is_first);
}

static PyObject *runs_compiled_code(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(fj_scope.active == SCOPE_COMPILED);
}

static PyObject *keep_signals(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    have_signals_wait();
    Py_RETURN_NONE;
}

static PyObject *handle_signals(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    if (FJ_UNLIKELY(fj_scope.waiting != NULL))
        return raise_waiting(Py_NewRef(Py_None));
    if (PyErr_CheckSignals() < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- TailCall ---- */
static PyObject *tailcall_new(PyObject *target, PyObject *const *args, Py_ssize_t nargs)
{
    TailCall *call = (TailCall *)TailCall_Type.tp_alloc(&TailCall_Type, nargs);
    if (call == NULL)
        return NULL;
    call->target = Py_NewRef(target);
    for (Py_ssize_t i = 0; i < nargs; i++)
        call->args[i] = Py_NewRef(args[i]);
    return (PyObject *)call;
}

static void tailcall_dealloc(PyObject *self)
{
    TailCall *call = (TailCall *)self;
    /* as a frame lets go of its variables, which from 3.14 on begins with the last */
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++)
        Py_XDECREF(call->args[PY_VERSION_HEX >= 0x030E0000 ? Py_SIZE(self) - 1 - i : i]);
    Py_XDECREF(call->kept);
    Py_XDECREF(call->target);
    Py_TYPE(self)->tp_free(self);
}

/* Not tracked by the collector: it lives from one return to the next call. */
PyTypeObject TailCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "framejit._native.TailCall",
    .tp_doc = "A call that whoever receives it must make.",
    .tp_basicsize = offsetof(TailCall, args),
    .tp_itemsize = sizeof(PyObject *),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = tailcall_dealloc,
};

/* ---- frames in tracebacks ----
   A frame of the program is several frames here, one after the other. Those that an exception went through are in its
   traceback, which in plain Python keeps alive what the frame holds at its end. So each of these has a list, which is
   given the frame that goes on; one that gave everything away holds nothing. */
static int is_kept(TailCall *call) { return call->kept && Py_REFCNT(call->kept) > 1; }

/* Before a frame goes on: those before it have given everything away. */
static int forget_earlier(TailCall *call)
{
    return PyList_SetSlice(call->kept, 0, PyList_GET_SIZE(call->kept), NULL);
}

static PyObject *keep_for_traceback(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 2 || !Py_IS_TYPE(args[0], &TailCall_Type) || !PyList_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "keep_for_traceback takes a tail call and a list");
        return NULL;
    }
    Py_XSETREF(((TailCall *)args[0])->kept, Py_NewRef(args[1]));
    Py_RETURN_NONE;
}

/* Compiled code has a frame of its own, which holds other things than the program's. */
static PyObject *keep_variables(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    TailCall *call = fj_scope.tail_call;
    for (Py_ssize_t i = 0; call && is_kept(call) && i < nargs; i++) {
        if (PyList_Append(call->kept, args[i]) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *is_in_traceback(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(fj_scope.tail_call && is_kept(fj_scope.tail_call));
}

PyObject *trampoline(PyObject *result)
{
    TailCall *outer = fj_scope.tail_call;
    while (result && Py_IS_TYPE(result, &TailCall_Type)) {
        TailCall *call = (TailCall *)result;
        fj_scope.tail_call = call;
        have_signals_wait();
        if (FJ_UNLIKELY(is_kept(call)) && forget_earlier(call) < 0)
            result = NULL;
        else
            result = dispatcher_call_once(call->target, call->args, (size_t)Py_SIZE(call), NULL);
        if (FJ_UNLIKELY(is_kept(call)) && result && Py_IS_TYPE(result, &TailCall_Type)
            && ((TailCall *)result)->kept == NULL)
            ((TailCall *)result)->kept = Py_NewRef(call->kept);
        Py_DECREF(call);
    }
    fj_scope.tail_call = outer;
    return result;
}

PyObject *call_taking_over(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    TailCall *call = fj_scope.tail_call, *before = fj_scope.handed_over;
    PyObject *kept = fj_scope.kept;
    fj_scope.handed_over = call && call->args == args ? call : NULL;
    fj_scope.kept = fj_scope.handed_over ? call->kept : NULL;
    PyObject *result = call_deep(function, args, nargsf, kwnames);
    fj_scope.handed_over = before;
    fj_scope.kept = kept;
    return result;
}

/* The frame that calls this has its arguments in variables of its own. */
static PyObject *take_over_arguments(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    TailCall *call = fj_scope.handed_over;
    fj_scope.handed_over = NULL;
    for (Py_ssize_t i = 0; call && i < Py_SIZE(call); i++)
        Py_CLEAR(call->args[i]);
    if (FJ_UNLIKELY(fj_scope.kept != NULL)) {
        PyObject *frame = (PyObject *)PyEval_GetFrame();
        if (frame == NULL || PyList_Append(fj_scope.kept, frame) < 0)
            return NULL;
    }
    have_signals_wait();
    Py_RETURN_NONE;
}

static PyObject *make_tail_call(PyObject *module, PyObject *call)
{
    (void)module;
    if (FJ_UNLIKELY(fj_scope.kept != NULL) && Py_IS_TYPE(call, &TailCall_Type) && ((TailCall *)call)->kept == NULL) {
        /* a list for the call: those that go on in it forget each other, not their caller */
        PyObject *kept = PyList_New(0);
        if (kept == NULL || PyList_Append(fj_scope.kept, kept) < 0) {
            Py_XDECREF(kept);
            return NULL;
        }
        ((TailCall *)call)->kept = kept;
    }
    c_call_give();  /* plain Python makes no call of C here, which would count as one level more */
    PyObject *result = trampoline(Py_NewRef(call));
    c_call_take();
    return FJ_UNLIKELY(fj_scope.waiting != NULL) ? raise_waiting(result) : result;
}

/* ---- Slot ---- */
static PyObject *slot_dead(void)
{
    PyErr_SetString(PyExc_RuntimeError, "this compiled code outlived the entry it belongs to");
    return NULL;
}

static PyObject *slot_call_value(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *target = ((Slot *)self)->target;
    if (FJ_UNLIKELY(target == NULL))
        return slot_dead();
    /* what runs here is compiled code and our own helpers: none of it is for the hook */
    int active = fj_scope.active;
    fj_scope.active = SCOPE_COMPILED;
    Py_INCREF(target);
    PyObject *result = PyObject_Vectorcall(target, args, nargsf, kwnames);
    Py_DECREF(target);
    if (FJ_LIKELY(result != NULL))
        have_signals_wait();
    fj_scope.active = active;
    return result;
}

static PyObject *slot_tail(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *target = ((Slot *)self)->target;
    if (FJ_UNLIKELY(target == NULL))
        return slot_dead();
    if (kwnames && PyTuple_GET_SIZE(kwnames)) {
        PyErr_SetString(PyExc_TypeError, "a tail call takes positional arguments only");
        return NULL;
    }
    have_signals_wait();
    return tailcall_new(target, args, PyVectorcall_NARGS(nargsf));
}

static PyObject *slot_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"target", "kind", NULL};
    static const vectorcallfunc calls[] = {slot_call_value, slot_tail};
    PyObject *target;
    int kind;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Oi:Slot", names, &target, &kind))
        return NULL;
    if (kind < SLOT_VALUE || kind > SLOT_TAIL) {
        PyErr_SetString(PyExc_ValueError, "the kind of a slot is 0 (value) or 1 (tail)");
        return NULL;
    }
    if (kind == SLOT_TAIL && !Py_IS_TYPE(target, &Dispatcher_Type)) {
        PyErr_SetString(PyExc_TypeError, "a tail slot's target is a Dispatcher");
        return NULL;
    }
    Slot *slot = (Slot *)type->tp_alloc(type, 0);
    if (slot == NULL)
        return NULL;
    slot->target = Py_NewRef(target);
    slot->kind = kind;
    slot->vectorcall = calls[kind];
    return (PyObject *)slot;
}

static void slot_dealloc(PyObject *self)
{
    Py_XDECREF(((Slot *)self)->target);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *slot_repr(PyObject *self)
{
    static const char *const kinds[] = {"value", "tail"};
    Slot *slot = (Slot *)self;
    PyObject *name = slot->target ? PyObject_Repr(slot->target) : PyUnicode_FromString("gone");
    PyObject *text = name ? PyUnicode_FromFormat("<Slot %s %U>", kinds[slot->kind], name) : NULL;
    Py_XDECREF(name);
    return text;
}

static PyMemberDef slot_members[] = {
    {"target", T_OBJECT, offsetof(Slot, target), READONLY, "What the slot calls; None once its entry is gone."},
    {"kind", T_INT, offsetof(Slot, kind), READONLY, "0 value, 1 tail."},
    {NULL, 0, 0, 0, NULL},
};

/* A constant of a code object, and code objects are invisible to the collector: the entry visits the target in the
 * slot's place. */
PyTypeObject Slot_Type = {
    TYPE_OF(Slot),
    .tp_doc = "Slot(target, kind): a callable constant of replacement code.",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = slot_new,
    .tp_dealloc = slot_dealloc,
    .tp_repr = slot_repr,
    CALLED_BY_VECTOR(Slot),
    .tp_members = slot_members,
};

/* ---- Entry ---- */
PyObject *entry_run_otherwise(Entry *entry, PyObject *const *args, size_t nargsf)
{
    PyObject *function = entry->function;
    if (function == NULL)
        return slot_dead();
    int active = fj_scope.active;
    fj_scope.passing = NULL;
    fj_scope.active = SCOPE_USER_CODE;
    hook_retain();
    PyObject *result = call_taking_over(function, args, nargsf, NULL);
    hook_release();
    fj_scope.active = active;
    return result;
}

static PyObject *build_function(PyCodeObject *code, PyFunctionObject *fn)
{
    Py_ssize_t n_closure = fn->func_closure ? PyTuple_GET_SIZE(fn->func_closure) : 0;
    if (code->co_flags & (CO_VARARGS | CO_VARKEYWORDS) || code->co_kwonlyargcount) {
        PyErr_SetString(PyExc_ValueError, "replacement code takes plain positional arguments");
        return NULL;
    }
    if (code->co_nfreevars != n_closure) {
        PyErr_Format(PyExc_ValueError, "replacement code has %d free variables, the function %zd", code->co_nfreevars,
            n_closure);
        return NULL;
    }
    PyFunctionObject *function = (PyFunctionObject *)PyFunction_New((PyObject *)code, fn->func_globals);
    if (function == NULL)
        return NULL;
    /* the function may have been made when its globals named other builtins */
    Py_XSETREF(function->func_builtins, Py_NewRef(fn->func_builtins));
    function->func_closure = Py_XNewRef(fn->func_closure);
    return (PyObject *)function;
}

static PyObject *function_with_builtins(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *code, *globals, *builtins, *closure = NULL;
    if (!PyArg_ParseTuple(args, "O!O!O!|O!:function_with_builtins", &PyCode_Type, &code, &PyDict_Type, &globals,
        &PyDict_Type, &builtins, &PyTuple_Type, &closure))
        return NULL;
    PyObject *function = PyFunction_New(code, globals);
    if (function == NULL)
        return NULL;
    Py_XSETREF(((PyFunctionObject *)function)->func_builtins, Py_NewRef(builtins));
    if (closure && PyFunction_SetClosure(function, closure) < 0)
        Py_CLEAR(function);
    return function;
}

static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"code", "fn", "guards", "slots", "flags", "tag", NULL};
    PyObject *code, *fn, *guards, *slots, *tag = Py_None;
    int flags = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!O!|iO:Entry", names, &PyCode_Type, &code, &PyFunction_Type,
        &fn, &GuardTree_Type, &guards, &PyTuple_Type, &slots, &flags, &tag))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(slots); i++) {
        PyObject *slot = PyTuple_GET_ITEM(slots, i);
        if (!Py_IS_TYPE(slot, &Slot_Type)) {
            PyErr_SetString(PyExc_TypeError, "slots is a tuple of Slot");
            return NULL;
        }
        /* owned twice, a target would be visited twice and the collector would take it for garbage */
        int repeated = ((Slot *)slot)->owned;
        for (Py_ssize_t j = 0; j < i; j++)
            repeated |= PyTuple_GET_ITEM(slots, j) == slot;
        if (repeated) {
            PyErr_SetString(PyExc_ValueError, "a slot belongs to one entry, once");
            return NULL;
        }
    }
    /* our own code runs under the hook like any other and must not be taken for the user's */
    if (code_decide(code, CODE_NEVER) < 0)
        return NULL;
    PyObject *function = build_function((PyCodeObject *)code, (PyFunctionObject *)fn);
    if (function == NULL)
        return NULL;
    Entry *entry = (Entry *)type->tp_alloc(type, 0);
    if (entry == NULL) {
        Py_DECREF(function);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(slots); i++)
        ((Slot *)PyTuple_GET_ITEM(slots, i))->owned = 1;
    entry->code = Py_NewRef(code);
    entry->function = function;
    entry->guards = Py_NewRef(guards);
    entry->slots = Py_NewRef(slots);
    entry->tag = Py_NewRef(tag);
    entry->flags = flags;
    entry->valid = 1;
    return (PyObject *)entry;
}

static int entry_traverse(PyObject *self, visitproc visit, void *arg)
{
    Entry *entry = (Entry *)self;
    Py_VISIT(entry->function);
    Py_VISIT(entry->guards);
    Py_VISIT(entry->tag);
    Py_VISIT(entry->slots);
    if (entry->slots)
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entry->slots); i++)
            Py_VISIT(((Slot *)PyTuple_GET_ITEM(entry->slots, i))->target);
    return 0;
}

static int entry_clear(PyObject *self)
{
    Entry *entry = (Entry *)self;
    PyObject *slots = entry->slots;
    entry->valid = 0;
    entry->slots = NULL;
    if (slots) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(slots); i++) {
            Slot *slot = (Slot *)PyTuple_GET_ITEM(slots, i);
            Py_CLEAR(slot->target);
        }
        Py_DECREF(slots);
    }
    Py_CLEAR(entry->function);
    Py_CLEAR(entry->tag);
    return 0;
}

static void entry_dealloc(PyObject *self)
{
    Entry *entry = (Entry *)self;
    PyObject_GC_UnTrack(self);
    entry_clear(self);
    Py_CLEAR(entry->guards);
    Py_CLEAR(entry->code);
    Py_TYPE(self)->tp_free(self);
}

static PyMemberDef entry_members[] = {
    {"code", T_OBJECT, offsetof(Entry, code), READONLY, "The replacement code object."},
    {"function", T_OBJECT, offsetof(Entry, function), READONLY,
     "The function that runs it; None where the frame hook has frames of the program run the code."},
    {"guards", T_OBJECT, offsetof(Entry, guards), READONLY, "The GuardTree."},
    {"slots", T_OBJECT, offsetof(Entry, slots), READONLY, "The slots this entry owns."},
    {"tag", T_OBJECT, offsetof(Entry, tag), READONLY, "What the maker of the entry attached."},
    {"flags", T_INT, offsetof(Entry, flags), READONLY, "Bit 0: runs user code that may be captured."},
    {"hits", T_ULONGLONG, offsetof(Entry, hits), READONLY, "How often the guards passed."},
    {"valid", T_BOOL, offsetof(Entry, valid), 0, "An entry that is not valid never matches."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject Entry_Type = {
    TYPE_OF(Entry),
    .tp_doc = "Entry(code, fn, guards, slots, flags=0, tag=None): replacement code for the frames whose guards hold.",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = entry_new,
    COLLECTED(entry),
    .tp_members = entry_members,
};

static PyObject *is_tailcall(PyObject *module, PyObject *obj)
{
    (void)module;
    return PyBool_FromLong(Py_IS_TYPE(obj, &TailCall_Type));
}

static PyObject *tail_call(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs == 0 || !Py_IS_TYPE(args[0], &Dispatcher_Type)) {
        PyErr_SetString(PyExc_TypeError, "a tail call's target is a Dispatcher");
        return NULL;
    }
    return tailcall_new(args[0], args + 1, nargs - 1);
}

static PyMethodDef methods[] = {
    {"tail_call", (PyCFunction)(void (*)(void))tail_call, METH_FASTCALL,
     "tail_call(dispatcher, *args) -> TailCall: what replacement code returns to leave through a call of the "
     "dispatcher."},
    {"function_with_builtins", function_with_builtins, METH_VARARGS,
     "function_with_builtins(code, globals, builtins, closure=()) -> a function that looks names up in these builtins, "
     "whatever its globals say."},
    {"make_tail_call", make_tail_call, METH_O,
     "make_tail_call(call) -> what the call, and those it leads to, come to."},
    {"take_over_arguments", take_over_arguments, METH_NOARGS,
     "take_over_arguments(): the first thing that a function does which continues a frame: from here on it alone holds "
     "its arguments."},
    {"handle_signals", handle_signals, METH_NOARGS,
     "handle_signals(): run the handlers of signals that have come; what they raise is raised here, and before that "
     "what waits."},
    {"runs_compiled_code", runs_compiled_code, METH_NOARGS,
     "runs_compiled_code() -> bool: whether this is called by compiled code, which looks for what waits at its end."},
    {"keep_signals", keep_signals, METH_NOARGS,
     "keep_signals(): run the handlers of signals that have come; what they raise waits."},
    {"raise_later", raise_later, METH_O,
     "raise_later(error) -> bool: have an exception raised where the program goes on: by the next call of "
     "handle_signals, or when the call ends that is being made. Whether no other waits."},
    {"keep_for_traceback", (PyCFunction)(void (*)(void))keep_for_traceback, METH_FASTCALL,
     "keep_for_traceback(call, kept): the frame that leaves through the tail call is in a traceback; it has the list "
     "`kept`, which is given what the frame holds that goes on."},
    {"keep_variables", (PyCFunction)(void (*)(void))keep_variables, METH_FASTCALL,
     "keep_variables(*objects): what the frame of the program that ends holds, for an earlier part of it that is in a "
     "traceback."},
    {"is_in_traceback", is_in_traceback, METH_NOARGS,
     "is_in_traceback() -> bool: whether the tail call that is being made goes on with a frame that a traceback "
     "shows."},
    {"is_tailcall", is_tailcall, METH_O, "is_tailcall(obj) -> bool: whether obj is a call still to be made."},
    {NULL, NULL, 0, NULL},
};

int entry_init(PyObject *module)
{
    if (PyType_Ready(&TailCall_Type) < 0 || PyModule_AddType(module, &Slot_Type) < 0
        || PyModule_AddType(module, &Entry_Type) < 0
        || PyModule_AddIntConstant(module, "RUNS_USER_CODE", ENTRY_RUNS_USER_CODE) < 0
        || PyModule_AddIntConstant(module, "SLOT_VALUE", SLOT_VALUE) < 0
        || PyModule_AddIntConstant(module, "SLOT_TAIL", SLOT_TAIL) < 0)
        return -1;
    return PyModule_AddFunctions(module, methods);
}
