/* The modes of torch that shape what a frame computes without appearing among its values: a State is a snapshot of this
 * thread's, and of the process's. */
#include "torch/process_state.h"
#include "torch/torch_symbols.h"

enum { DEVICE_CPU = 0, DEVICE_CUDA = 1, AUTOGRAD_STATE_BYTES = 48 };

typedef struct {
    /* local dispatch keys: autocast, functorch, Python dispatch modes; those that `ignored` has are in neither */
    uint64_t included, excluded;
    int64_t n_function_modes;
    uint8_t autograd;                     /* grad, inference and forward-mode flags */
    uint8_t function_disabled, default_dtype, autocast_cache, autocast_cpu, autocast_cuda;
    uint8_t anomalies;                    /* whether autograd looks for them */
    uint8_t deterministic;  /* bits: only deterministic algorithms, which only warn, new memory is filled */
    int forward_level;
    uint32_t tensor_methods;
} Words;

typedef struct {
    PyObject_HEAD
    Words words;
    PyObject *modes;                      /* tuple of the torch-function modes, outermost first */
    PyObject *described;                  /* dict name -> value, for people */
    PyObject *rest;  /* what Python says of the parts that have no words here; None where all have */
} State;

/* Parts of the state that are read here, each by what torch exports for it; Python is asked for the others. */
enum { PART_KEYS = 1, PART_AUTOGRAD = 2, PART_FUNCTIONS = 4, PART_DTYPE = 8, PART_AUTOCAST = 16, PART_ANOMALIES = 32,
    PART_DETERMINISTIC = 64,
       ALL_PARTS = 127 };
static const struct { int part; const char *name; } parts[] = {
    {PART_KEYS, "dispatch keys"}, {PART_AUTOGRAD, "autograd"}, {PART_FUNCTIONS, "torch functions"},
        {PART_DTYPE, "default dtype"},
    {PART_AUTOCAST, "autocast"}, {PART_ANOMALIES, "anomaly detection"},
        {PART_DETERMINISTIC, "deterministic algorithms"},
};

static struct {
    int found;                            /* the parts */
    PyObject *lost;                       /* tuple of the names of the others */
    uint64_t ignored;                     /* keys that make no difference to what is captured */
    uint8_t autograd_mask;                /* the bits of that byte that matter, as calibrated */
    int autograd_offset;
    uint8_t *(*autograd_state)(void);
    const void *(*function_state)(void);
    int function_state_known;             /* it is laid out as FunctionState */
    int64_t (*stack_len)(void);
    const uint8_t *anomalies;             /* where autograd keeps that, for the whole process */
    const void *context;                  /* at::Context, there is one */
    _Bool (*deterministic)(const void *), (*only_warns)(const void *), (*fills_memory)(const void *);
    int (*disabled_state)(void), (*default_dtype)(void), (*autocast_dtype)(int), (*autocast_cache)(void);
    PyObject *describe, *mode_at, *device_mode;
} torch;

/* at::impl::PythonTorchFunctionTLS: an enumeration and a vector of shared pointers. Read only once it is seen to behave
 * like this. */
typedef struct {
    int32_t disabled;
    char *begin, *end;
} FunctionState;
enum { SHARED_POINTER_SIZE = 2 * sizeof(void *) };

static FJ_THREAD_LOCAL uint64_t *thread_keys;
static FJ_THREAD_LOCAL uint8_t *thread_autograd;
static FJ_THREAD_LOCAL const FunctionState *thread_functions;
static PyObject *name_device;

/* dlsym and the getter give the addresses of this thread's copies, which stay where they are while the thread lives. */
static __attribute__((noinline)) void find_thread_words(void)
{
    static uint64_t no_keys[2];
    thread_keys = torch.found & PART_KEYS ? torch_symbol("_ZN3c104impl26raw_local_dispatch_key_setE") : no_keys;
    thread_autograd = torch.found & PART_AUTOGRAD ? torch.autograd_state() + torch.autograd_offset : NULL;
    thread_functions = torch.function_state_known ? torch.function_state() : NULL;
}

/* Words of parts that are not found stay 0. */
static inline void read_parts(Words *w, int found)
{
    if (FJ_UNLIKELY(thread_keys == NULL))
        find_thread_words();
    w->included = thread_keys[0] & ~torch.ignored;
    w->excluded = thread_keys[1] & ~torch.ignored;
    w->autograd = found & PART_AUTOGRAD ? *thread_autograd & torch.autograd_mask : 0;
    if (!(found & PART_FUNCTIONS)) {
        w->n_function_modes = 0;
        w->function_disabled = 0;
    }
    else if (FJ_LIKELY(thread_functions != NULL)) {
        w->n_function_modes = (thread_functions->end - thread_functions->begin) / SHARED_POINTER_SIZE;
        w->function_disabled = (uint8_t)thread_functions->disabled;
    }
    else {
        w->n_function_modes = torch.stack_len();
        w->function_disabled = (uint8_t)torch.disabled_state();
    }
    w->default_dtype = found & PART_DTYPE ? (uint8_t)torch.default_dtype() : 0;
    w->anomalies = found & PART_ANOMALIES ? *torch.anomalies : 0;
    w->deterministic = found & PART_DETERMINISTIC && torch.deterministic(torch.context)
        ? (uint8_t)(1 | torch.only_warns(torch.context) << 1 | torch.fills_memory(torch.context) << 2) : 0;
    w->forward_level = forward_level_now();
    w->tensor_methods = tensor_methods_now();
}

static inline void read_words(Words *w)
{
    if (FJ_LIKELY(torch.found == ALL_PARTS))
        read_parts(w, ALL_PARTS);
    else
        read_parts(w, torch.found);
}

/* Only under autocast do its dtypes matter, and autocast changes the dispatch keys. */
static void read_autocast(Words *w)
{
    w->autocast_cache = (uint8_t)torch.autocast_cache() & 1;
    w->autocast_cpu = (uint8_t)torch.autocast_dtype(DEVICE_CPU);
    w->autocast_cuda = (uint8_t)torch.autocast_dtype(DEVICE_CUDA);
}

static int autocast_may_be_on(const Words *w)
{
    /* the raw words are zero in a thread that changed nothing */
    return (w->included != 0 || w->excluded != 0) && torch.found & PART_AUTOCAST;
}

static int same_mode(PyObject *a, PyObject *b)
{
    if (a == b)
        return 1;
    if (torch.device_mode == NULL)
        return 0;
    int is_device = (PyObject *)Py_TYPE(a) == torch.device_mode;
    if (is_device != ((PyObject *)Py_TYPE(b) == torch.device_mode))
        return 0;
    /* what runs under a mode of the program's own is never captured, whichever mode it is */
    if (!is_device)
        return 1;
    /* torch.set_default_device and `with torch.device(...)` make a new mode each time; the device is what counts */
    PyObject *x = PyObject_GetAttr(a, name_device), *y = PyObject_GetAttr(b, name_device);
    int same = x && y ? PyObject_RichCompareBool(x, y, Py_EQ) : -1;
    Py_XDECREF(x);
    Py_XDECREF(y);
    return same;
}

static int same_modes_now(PyObject *modes)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(modes); i++) {
        PyObject *now = PyObject_CallFunction(torch.mode_at, "n", i);
        int same = now ? same_mode(PyTuple_GET_ITEM(modes, i), now) : -1;
        Py_XDECREF(now);
        if (same != 1)
            return same;
    }
    return 1;
}

/* What Python says of the parts that have no words; a new reference. */
static PyObject *describe_rest(void)
{
    return torch.found == ALL_PARTS ? Py_NewRef(Py_None) : PyObject_CallOneArg(torch.describe, torch.lost);
}

static FJ_APART int same_rest_now(const State *state)
{
    PyObject *now = describe_rest();
    int same = now ? PyObject_RichCompareBool(now, state->rest, Py_EQ) : -1;
    Py_XDECREF(now);
    return same;
}

/* Apart, so that the words of the others need no memory. */
static FJ_APART int same_autocast_now(const Words *old)
{
    Words now;
    read_autocast(&now);
    return now.autocast_cache == old->autocast_cache && now.autocast_cpu == old->autocast_cpu
        && now.autocast_cuda == old->autocast_cuda;
}

int state_matches(PyObject *self)
{
    State *state = (State *)self;
    const Words *old = &state->words;
    Words now;
    read_words(&now);
    if (now.included != old->included || now.excluded != old->excluded || now.autograd != old->autograd
        || now.n_function_modes != old->n_function_modes || now.function_disabled != old->function_disabled
        || now.default_dtype != old->default_dtype || now.anomalies != old->anomalies
        || now.deterministic != old->deterministic || now.forward_level != old->forward_level
        || now.tensor_methods != old->tensor_methods)
        return 0;
    if (FJ_UNLIKELY(autocast_may_be_on(&now)) && !same_autocast_now(old))
        return 0;
    if (FJ_LIKELY(now.n_function_modes == 0 && torch.found == ALL_PARTS))
        return 1;
    int same = same_modes_now(state->modes);
    if (same == 1)
        same = same_rest_now(state);
    if (same < 0)
        PyErr_Clear();
    return same == 1;
}

/* ---- snapshot ---- */
static PyObject *snapshot_state(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    if (torch.describe == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "thread state is not set up: import framejit.guards.tensor_layout first");
        return NULL;
    }
    State *state = (State *)State_Type.tp_alloc(&State_Type, 0);
    if (state == NULL)
        return NULL;
    read_words(&state->words);
    if (autocast_may_be_on(&state->words))
        read_autocast(&state->words);
    int64_t n = state->words.n_function_modes;
    state->modes = PyTuple_New(n);
    state->described = PyObject_CallNoArgs(torch.describe);
    state->rest = state->described ? describe_rest() : NULL;
    if (state->modes == NULL || state->rest == NULL)
        goto bad;
    if (!PyDict_CheckExact(state->described)) {
        PyErr_SetString(PyExc_TypeError, "the description of the thread state is a dict");
        goto bad;
    }
    for (int64_t i = 0; i < n; i++) {
        PyObject *mode = PyObject_CallFunction(torch.mode_at, "n", (Py_ssize_t)i);
        if (mode == NULL)
            goto bad;
        PyTuple_SET_ITEM(state->modes, i, mode);
    }
    return (PyObject *)state;
bad:
    Py_DECREF(state);
    return NULL;
}

static int states_equal(State *a, State *b)
{
    const Words *x = &a->words, *y = &b->words;
    if (x->included != y->included || x->excluded != y->excluded || x->autograd != y->autograd
        || x->n_function_modes != y->n_function_modes || x->function_disabled != y->function_disabled
        || x->default_dtype != y->default_dtype || x->autocast_cache != y->autocast_cache
        || x->autocast_cpu != y->autocast_cpu || x->autocast_cuda != y->autocast_cuda
        || x->forward_level != y->forward_level || x->tensor_methods != y->tensor_methods
        || x->anomalies != y->anomalies || x->deterministic != y->deterministic)
        return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a->modes); i++) {
        int same = same_mode(PyTuple_GET_ITEM(a->modes, i), PyTuple_GET_ITEM(b->modes, i));
        if (same != 1)
            return same;
    }
    return PyObject_RichCompareBool(a->rest, b->rest, Py_EQ);
}

static PyObject *state_compare(PyObject *a, PyObject *b, int op)
{
    if (!Py_IS_TYPE(a, &State_Type) || !Py_IS_TYPE(b, &State_Type) || (op != Py_EQ && op != Py_NE))
        Py_RETURN_NOTIMPLEMENTED;
    int same = states_equal((State *)a, (State *)b);
    return same < 0 ? NULL : PyBool_FromLong(same == (op == Py_EQ));
}

static int add_difference(PyObject *list, PyObject *name, PyObject *expected, PyObject *actual)
{
    PyObject *item = PyTuple_Pack(3, name, expected, actual);
    int bad = item == NULL || PyList_Append(list, item) < 0;
    Py_XDECREF(item);
    return bad ? -1 : 0;
}

static PyObject *state_diff(PyObject *self, PyObject *other)
{
    if (!Py_IS_TYPE(other, &State_Type)) {
        PyErr_SetString(PyExc_TypeError, "a State is compared with a State");
        return NULL;
    }
    PyObject *list = PyList_New(0), *name, *expected;
    Py_ssize_t pos = 0;
    while (list && PyDict_Next(((State *)self)->described, &pos, &name, &expected)) {
        PyObject *actual = PyDict_GetItemWithError(((State *)other)->described, name);
        int same = actual ? PyObject_RichCompareBool(expected, actual, Py_EQ) : PyErr_Occurred() ? -1 : 0;
        if (same < 0 || (!same && add_difference(list, name, expected, actual ? actual : Py_None) < 0))
            Py_CLEAR(list);
    }
    return list;
}

static int state_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((State *)self)->modes);
    Py_VISIT(((State *)self)->described);
    Py_VISIT(((State *)self)->rest);
    return 0;
}

static void state_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_XDECREF(((State *)self)->modes);
    Py_XDECREF(((State *)self)->described);
    Py_XDECREF(((State *)self)->rest);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef state_methods[] = {
    {"diff", state_diff, METH_O,
     "diff(other) -> list of (name, value here, value in other) for every mode that differs."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef state_members[] = {
    {"described", T_OBJECT, offsetof(State, described), READONLY, "The modes by name."},
    {NULL, 0, 0, 0, NULL},
};
PyTypeObject State_Type = {
    TYPE_OF(State),
    .tp_doc = "The torch modes of a thread at one moment. Made by snapshot_state().",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = state_dealloc,
    .tp_traverse = state_traverse,
    .tp_richcompare = state_compare,
    .tp_hash = PyObject_HashNotImplemented,
    .tp_methods = state_methods,
    .tp_members = state_members,
};

/* ---- setup ---- */
static PyObject *state_matches_now(PyObject *module, PyObject *state)
{
    (void)module;
    if (!Py_IS_TYPE(state, &State_Type)) {
        PyErr_SetString(PyExc_TypeError, "state_matches takes a State");
        return NULL;
    }
    return PyBool_FromLong(state_matches(state));
}

/* The parts that torch exports what is needed for. */
static int find_symbols(void)
{
    const void *(*context)(void);
    *(void **)&torch.autograd_state = torch_symbol("_ZN3c1013AutogradState13get_tls_stateEv");
    *(void **)&torch.default_dtype = torch_symbol("_ZN3c1031get_default_dtype_as_scalartypeEv");
    *(void **)&torch.stack_len = torch_symbol("_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv");
    *(void **)&torch.disabled_state = torch_symbol("_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv");
    *(void **)&torch.function_state = torch_symbol("_ZN2at4impl22PythonTorchFunctionTLS9get_stateEv");
    *(void **)&torch.autocast_dtype = torch_symbol("_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE");
    *(void **)&torch.autocast_cache = torch_symbol("_ZN2at8autocast25is_autocast_cache_enabledEv");
    *(void **)&torch.anomalies = torch_symbol("_ZN5torch8autograd11AnomalyMode8_enabledE");
    *(void **)&torch.deterministic = torch_symbol("_ZNK2at7Context23deterministicAlgorithmsEv");
    *(void **)&torch.only_warns = torch_symbol("_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv");
    *(void **)&torch.fills_memory = torch_symbol("_ZNK2at7Context36deterministicFillUninitializedMemoryEv");
    *(void **)&context = torch_symbol("_ZN2at13globalContextEv");
    torch.context = context ? context() : NULL;
    int keys = torch_symbol("_ZN3c104impl26raw_local_dispatch_key_setE") != NULL;
    return (keys ? PART_KEYS : 0) | (torch.autograd_state ? PART_AUTOGRAD : 0)
        | (torch.function_state || (torch.stack_len && torch.disabled_state) ? PART_FUNCTIONS : 0)
        | (torch.default_dtype ? PART_DTYPE : 0)
        /* autocast shows in the keys, and is read only where they differ from nothing */
        | (keys && torch.autocast_dtype && torch.autocast_cache ? PART_AUTOCAST : 0)
        | (torch.anomalies ? PART_ANOMALIES : 0)
        | (torch.context && torch.deterministic && torch.only_warns && torch.fills_memory ? PART_DETERMINISTIC : 0);
}

static PyObject *autograd_flags(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    find_symbols();                       /* not at import of this module: torch may come later */
    if (torch.autograd_state == NULL)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((char *)torch.autograd_state(), AUTOGRAD_STATE_BYTES);
}

static PyObject *function_flags(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    find_symbols();
    if (torch.function_state == NULL)
        Py_RETURN_NONE;
    const FunctionState *state = torch.function_state();
    return Py_BuildValue("(in)", (int)state->disabled, (Py_ssize_t)((state->end - state->begin) / SHARED_POINTER_SIZE));
}

static PyObject *setup_state(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *describe, *mode_at, *device_mode;
    int offset, mask, function_state_known;
    unsigned long long ignored;
    if (!PyArg_ParseTuple(args, "OOOiipK:setup_state", &describe, &mode_at, &device_mode, &offset, &mask,
        &function_state_known, &ignored))
        return NULL;
    if (offset < 0 || offset >= AUTOGRAD_STATE_BYTES) {
        PyErr_SetString(PyExc_ValueError, "offset is outside the autograd state");
        return NULL;
    }
    Py_XSETREF(torch.describe, Py_NewRef(describe));
    Py_XSETREF(torch.mode_at, Py_NewRef(mode_at));
    Py_XSETREF(torch.device_mode, Py_NewRef(device_mode));
    torch.ignored = ignored;
    torch.autograd_mask = (uint8_t)mask;
    torch.autograd_offset = offset;
    thread_keys = NULL;                   /* this thread's addresses may be those of an earlier calibration */
    torch.found = find_symbols();
    torch.function_state_known = function_state_known && torch.function_state;
    if (mask == 0)
        torch.found &= ~PART_AUTOGRAD;
    if (!torch.function_state_known && !(torch.stack_len && torch.disabled_state))
        torch.found &= ~PART_FUNCTIONS;
    PyObject *lost = PyList_New(0), *names = NULL;
    for (size_t i = 0; lost && i < Py_ARRAY_LENGTH(parts); i++) {
        PyObject *name = torch.found & parts[i].part ? NULL : PyUnicode_FromString(parts[i].name);
        if (name && PyList_Append(lost, name) < 0)
            Py_CLEAR(lost);
        Py_XDECREF(name);
    }
    if (lost == NULL || (names = PyList_AsTuple(lost)) == NULL) {
        Py_XDECREF(lost);
        return NULL;
    }
    Py_DECREF(lost);
    Py_XSETREF(torch.lost, Py_NewRef(names));
    return names;
}

static PyMethodDef methods[] = {
    {"snapshot_state", snapshot_state, METH_NOARGS, "snapshot_state() -> State: the torch modes of this thread now."},
    {"state_matches", state_matches_now, METH_O,
     "state_matches(state) -> bool: whether this thread's modes are those of the snapshot."},
    {"autograd_flags", autograd_flags, METH_NOARGS,
     "autograd_flags() -> bytes | None: the memory in which torch keeps this thread's autograd modes."},
    {"function_flags", function_flags, METH_NOARGS,
     "function_flags() -> (disabled, modes) | None: what torch-function state seems to be."},
    {"setup_state", setup_state, METH_VARARGS,
     "setup_state(describe, mode_at, device_mode, offset, mask, function_state_known, ignored) -> tuple: prepare "
     "snapshots; the parts for which Python is asked.\n"
     "describe([parts]) gives a dict of what is so in these parts, or in all."},
    {NULL, NULL, 0, NULL},
};

int thread_state_init(PyObject *module)
{
    name_device = PyUnicode_InternFromString("device");
    if (name_device == NULL || PyModule_AddType(module, &State_Type) < 0)
        return -1;
    return PyModule_AddFunctions(module, methods);
}
