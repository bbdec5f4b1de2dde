/* Selector: keeps a compiled graph only while it is worth it.
 *
 * The first calls measure both ways; then the quicker one is called for good, and all that is left of the selector is
 * one indirect call. A graph without side effects runs both ways on the same inputs (the caller gets the compiled
 * result), one with side effects takes turns, so that nothing ever happens twice. Devices run behind the program: their
 * clocks are read when they are ready, on a later call, and nothing waits for them.
 *
 * The first run of eager on a device is the dearest: each kernel is brought there when it is first launched. So it is
 * not run where its launches alone would take longer than the compiled graph, nor before that has run for a while; and
 * what it took at first is not what it takes. */
#include "native.h"
#include "torch/device_timer.h"
#include "torch/tensor_spec.h"
#include "torch/torch_warnings.h"
#include <time.h>

enum { MAX_SAMPLES = 1000, DEVICE_TYPE_CUDA = 1 };
static const int64_t SHORT_NS = 20000;             /* below this noise is a larger share */
static const double SHORT_NOISE = 1.05, NOISE = 1.03, CLOCK_NOISE_NS = 30, PLAINLY_SLOWER = 4;

typedef enum { COMPILED, EAGER } Way;
typedef struct {
    Way way;
    int64_t host_ns;
    DeviceSpan span;
} Sample;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *way[2];                              /* compiled, eager; NULL once cleared */
    PyObject *target;  /* borrowed from way: what calls go to once that is decided; NULL before */
    Way decided;
    PyObject *on_decision;                         /* NULL once it was called */
    Sample *samples;
    int n_samples, n_taken;
    int pure, cuda;
    int warm, measuring;
    double margin;
    int64_t best[2];                               /* ns; -1: not measured */
    int64_t least_eager_ns;                        /* what eager takes at least; 0: not known */
    int64_t wait_ns;                               /* for how long the compiled way still runs before eager is tried */
    int probed;
    char by_least;
    Sample probe;                                  /* of the compiled way alone, to compare with the least of eager */
} Selector;

static PyObject *forward(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return PyObject_Vectorcall(((Selector *)self)->target, args, nargsf, kwnames);
}

/* ---- deciding ---- */
static void forget_samples(Selector *selector)
{
    Sample *samples = selector->samples;
    selector->samples = NULL;
    for (int i = 0; samples && i < selector->n_taken; i++)
        span_free(&samples[i].span);
    PyMem_Free(samples);
}

static void decide(Selector *selector, Way way)
{
    selector->decided = way;
    selector->target = selector->way[way];
    selector->vectorcall = forward;
    forget_samples(selector);
    PyObject *told = selector->on_decision;
    selector->on_decision = NULL;
    if (told == NULL)
        return;
    /* the program's own call goes on whatever becomes of this one, and in whatever state */
    SavedError error = error_save();
    PyObject *result = PyObject_CallOneArg(told, (PyObject *)selector);
    if (result == NULL)
        PyErr_WriteUnraisable(told);
    Py_XDECREF(result);
    Py_DECREF(told);
    error_restore(error);
}

/* Writes the best times, of the host or of whichever of the host and the device is later. 0: the device is not
 * ready. */
static int read_samples(Selector *selector)
{
    int64_t device_ns[2] = {-1, -1}, host_ns[2] = {-1, -1};
    int on_device = selector->cuda;
    for (int i = 0; i < selector->n_taken; i++) {
        const Sample *sample = &selector->samples[i];
        int64_t host = sample->host_ns, device, *best = &host_ns[sample->way];
        *best = *best < 0 || host < *best ? host : *best;
        if (!on_device)
            continue;
        int known = span_length(&sample->span, &device);
        if (known == 0)
            return 0;
        on_device = known > 0;                     /* one that is missing would make the comparison unfair */
        device = device > host ? device : host;
        best = &device_ns[sample->way];
        *best = *best < 0 || device < *best ? device : *best;
    }
    memcpy(selector->best, on_device ? device_ns : host_ns, sizeof(selector->best));
    return 1;
}

/* Whether more samples would tell nothing new: what takes many times as long, on a device not only for the first time,
 * need not be run again. */
static int eager_has_lost(Selector *selector)
{
    int enough = selector->cuda ? 4 : 2;
    return selector->n_taken >= enough && read_samples(selector) && selector->best[EAGER] > SHORT_NS
        && (double)selector->best[EAGER] > PLAINLY_SLOWER * (double)selector->best[COMPILED] * selector->margin;
}

static void try_to_decide(Selector *selector)
{
    if (!read_samples(selector))
        return;
    double compiled = (double)selector->best[COMPILED], eager = (double)selector->best[EAGER];
    double noise = selector->best[EAGER] < SHORT_NS ? SHORT_NOISE : NOISE;
    decide(selector, eager * noise + CLOCK_NOISE_NS < compiled * selector->margin ? EAGER : COMPILED);
}

/* ---- measuring ---- */
/* The device of the first CUDA tensor, -1 if there is none. */
static int device_of(PyObject *const *args, Py_ssize_t nargs)
{
    for (Py_ssize_t i = 0; i < nargs; i++) {
        int32_t type, index;
        if (PyObject_TypeCheck(args[i], fj_torch.tensor_type) && fj_torch.get_device_type(HANDLE(args[i]), &type) == 0
            && type == DEVICE_TYPE_CUDA)
            return fj_torch.get_device_index(HANDLE(args[i]), &index) == 0 ? index : -1;
    }
    return -1;
}

/* Opens a sample. 0: nothing is to be measured now. */
static int sample_begin(const Selector *selector, Sample *sample, Way way, PyObject *const *args, size_t nargsf,
    PyObject *kwnames)
{
    *sample = (Sample){way};
    if (!selector->cuda || fj_torch.impl < 0 || !fj_torch.get_device_type || !fj_torch.get_device_index)
        return 1;
    int device = device_of(args, PyVectorcall_NARGS(nargsf) + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0));
    return device < 0 || span_begin(&sample->span, device) != DEVICE_CAPTURING;
}

/* Runs what the sample was opened for. It counts only if that succeeds. */
static PyObject *run_timed(Selector *selector, Sample *sample, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    int64_t start = fj_now();
    PyObject *result = PyObject_Vectorcall(selector->way[sample->way], args, nargsf, kwnames);
    sample->host_ns = fj_now() - start;
    span_end(&sample->span);
    if (result)
        selector->samples[selector->n_taken++] = *sample;
    else
        span_free(&sample->span);
    return result;
}

/* A compiled run that decides if it warns. */
static PyObject *run_warned(Selector *selector, Sample *sample, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    unsigned long given = fj_warnings_given;
    warnings_count_begin();
    PyObject *result = run_timed(selector, sample, args, nargsf, kwnames);
    warnings_count_end();
    if (result && given != fj_warnings_given)
        decide(selector, COMPILED);
    return result;
}

/* Both ways, and the compiled one's result. Where that one warns the other would warn again. */
static PyObject *measure_both(Selector *selector, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Sample sample;
    int taken = selector->n_taken;
    if (!sample_begin(selector, &sample, COMPILED, args, nargsf, kwnames))
        return PyObject_Vectorcall(selector->way[COMPILED], args, nargsf, kwnames);
    PyObject *result = run_warned(selector, &sample, args, nargsf, kwnames), *other = NULL;
    if (result == NULL || selector->target)
        return result;
    if (sample_begin(selector, &sample, EAGER, args, nargsf, kwnames)) {
        other = run_timed(selector, &sample, args, nargsf, kwnames);
        if (other == NULL && !PyErr_ExceptionMatches(PyExc_Exception))
            Py_CLEAR(result);                      /* the user interrupted it */
        else if (other == NULL) {
            PyErr_Clear();                         /* whether this call raises the compiled run has said */
            decide(selector, COMPILED);
        }
        Py_XDECREF(other);
    }
    if (selector->samples && selector->n_taken == taken + 1)       /* a pair or nothing */
        span_free(&selector->samples[--selector->n_taken].span);
    return result;
}

static PyObject *measure_in_turn(Selector *selector, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Sample sample;
    if (!sample_begin(selector, &sample, selector->n_taken % 2 ? EAGER : COMPILED, args, nargsf, kwnames))
        return PyObject_Vectorcall(selector->way[COMPILED], args, nargsf, kwnames);
    return run_timed(selector, &sample, args, nargsf, kwnames);
}

/* ---- before eager is run ---- */
typedef enum { PROBING, PROBED, COMPARED } Probe;

/* Compares the probe with what eager takes at least, once the device is ready. */
static void compare_probe(Selector *selector)
{
    int64_t device_ns = 0, host_ns = selector->probe.host_ns;
    int known = selector->cuda ? span_length(&selector->probe.span, &device_ns) : 1;
    if (known == 0)
        return;
    selector->probed = COMPARED;
    span_free(&selector->probe.span);
    int64_t compiled_ns = device_ns > host_ns ? device_ns : host_ns;
    if (known < 0 || (double)compiled_ns * selector->margin >= (double)selector->least_eager_ns)
        return;
    selector->best[COMPILED] = compiled_ns;
    selector->best[EAGER] = selector->least_eager_ns;
    selector->by_least = 1;
    decide(selector, COMPILED);
}

/* A compiled run by itself. */
static PyObject *run_alone(Selector *selector, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Sample sample = {COMPILED};
    int is_probe = selector->probed == PROBING && sample_begin(selector, &sample, COMPILED, args, nargsf, kwnames);
    int64_t start = fj_now();
    PyObject *result = PyObject_Vectorcall(selector->way[COMPILED], args, nargsf, kwnames);
    sample.host_ns = fj_now() - start;
    selector->wait_ns -= sample.host_ns;
    if (!is_probe)
        return result;
    span_end(&sample.span);
    if (result == NULL) {
        span_free(&sample.span);
        return NULL;
    }
    selector->probe = sample;
    selector->probed = PROBED;
    return result;
}

static PyObject *measure(Selector *selector, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *result;
    if (!selector->warm) {
        result = PyObject_Vectorcall(selector->way[COMPILED], args, nargsf, kwnames);
        selector->warm = result != NULL;
        return result;
    }
    if (selector->probed == PROBED) {
        compare_probe(selector);
        if (selector->target)
            return PyObject_Vectorcall(selector->target, args, nargsf, kwnames);
    }
    if (selector->probed != COMPARED || selector->wait_ns > 0)
        return run_alone(selector, args, nargsf, kwnames);
    if (selector->n_taken && selector->n_taken % 2 == 0 && eager_has_lost(selector)) {
        decide(selector, COMPILED);
        return PyObject_Vectorcall(selector->way[COMPILED], args, nargsf, kwnames);
    }
    if (selector->n_taken == selector->n_samples) {    /* the device was not ready when the last sample was taken */
        try_to_decide(selector);
        PyObject *chosen = selector->target ? selector->target : selector->way[COMPILED];
        return PyObject_Vectorcall(chosen, args, nargsf, kwnames);
    }
    result = selector->pure ? measure_both(selector, args, nargsf, kwnames)
        : measure_in_turn(selector, args, nargsf, kwnames);
    if (result && selector->n_taken == selector->n_samples)
        try_to_decide(selector);
    return result;
}

static PyObject *selector_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Selector *selector = (Selector *)self;
    if (selector->way[COMPILED] == NULL || selector->way[EAGER] == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this selector was cleared by the garbage collector");
        return NULL;
    }
    if (selector->measuring)                         /* another thread is at it, or the selector runs inside itself */
        return PyObject_Vectorcall(selector->way[COMPILED], args, nargsf, kwnames);
    selector->measuring = 1;
    PyObject *result = measure(selector, args, nargsf, kwnames);
    selector->measuring = 0;
    return result;
}

/* ---- the Python object ---- */
static PyObject *selector_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"compiled", "eager", "pure", "cuda", "samples", "margin", "on_decision",
        "least_eager_ns", "wait_ns", NULL};
    PyObject *compiled, *eager, *on_decision = Py_None;
    int pure = -1, cuda = -1, samples = 3;
    double margin = 1.0;
    long long least_eager_ns = 0, wait_ns = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$ppidOLL:Selector", names, &compiled, &eager, &pure, &cuda,
        &samples, &margin, &on_decision, &least_eager_ns, &wait_ns))
        return NULL;
    if (pure < 0 || cuda < 0 || !PyCallable_Check(compiled) || !PyCallable_Check(eager)
        || (on_decision != Py_None && !PyCallable_Check(on_decision))) {
        PyErr_SetString(PyExc_TypeError, "a selector takes two callables, and the keywords 'pure' and 'cuda'");
        return NULL;
    }
    if (samples < 0 || samples > MAX_SAMPLES || !(margin > 0)) {
        PyErr_Format(PyExc_ValueError, "a selector takes up to %d samples and a positive margin", MAX_SAMPLES);
        return NULL;
    }
    Selector *selector = (Selector *)type->tp_alloc(type, 0);
    if (selector == NULL)
        return NULL;
    selector->vectorcall = selector_call;
    selector->way[COMPILED] = Py_NewRef(compiled);
    selector->way[EAGER] = Py_NewRef(eager);
    selector->on_decision = on_decision == Py_None ? NULL : Py_NewRef(on_decision);
    selector->pure = pure;
    selector->cuda = cuda;
    selector->margin = margin;
    selector->least_eager_ns = least_eager_ns;
    selector->wait_ns = wait_ns;
    selector->probed = least_eager_ns > 0 ? PROBING : COMPARED;
    selector->best[COMPILED] = selector->best[EAGER] = -1;
    if (samples == 0) {                                /* there is nothing to choose, nor to tell */
        Py_CLEAR(selector->on_decision);
        decide(selector, COMPILED);
        return (PyObject *)selector;
    }
    selector->n_samples = 2 * samples;
    if ((selector->samples = PyMem_Calloc(selector->n_samples, sizeof(Sample))) == NULL) {
        Py_DECREF(selector);
        return PyErr_NoMemory();
    }
    return (PyObject *)selector;
}

static int selector_traverse(PyObject *self, visitproc visit, void *arg)
{
    Selector *selector = (Selector *)self;
    Py_VISIT(selector->way[COMPILED]);
    Py_VISIT(selector->way[EAGER]);
    Py_VISIT(selector->on_decision);
    return 0;
}

static int selector_clear(PyObject *self)
{
    Selector *selector = (Selector *)self;
    selector->vectorcall = selector_call;              /* which says that there is nothing to call */
    Py_CLEAR(selector->way[COMPILED]);
    Py_CLEAR(selector->way[EAGER]);
    Py_CLEAR(selector->on_decision);
    return 0;
}

static void selector_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    selector_clear(self);
    forget_samples((Selector *)self);
    span_free(&((Selector *)self)->probe.span);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *get_state(PyObject *self, void *unused)
{
    (void)unused;
    Selector *selector = (Selector *)self;
    const char *decided = selector->decided == EAGER ? "eager" : "compiled";
    return PyUnicode_FromString(selector->target == NULL ? "measuring" : decided);
}

static PyObject *get_best(PyObject *self, void *way)
{
    int64_t best = ((Selector *)self)->best[(intptr_t)way];
    return best < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(best);
}

static PyObject *selector_repr(PyObject *self)
{
    Selector *selector = (Selector *)self;
    PyObject *state = get_state(self, NULL);
    PyObject *text = state ? PyUnicode_FromFormat("<Selector %U of %R>", state, selector->way[COMPILED]) : NULL;
    Py_XDECREF(state);
    return text;
}

static PyGetSetDef selector_getset[] = {
    {"state", get_state, NULL, "'measuring', 'compiled' or 'eager'.", NULL},
    {"compiled_ns", get_best, NULL, "The quickest compiled run measured, in nanoseconds, or None.", (void *)COMPILED},
    {"eager_ns", get_best, NULL, "The quickest eager run measured, or what one takes at least, in nanoseconds, or None.",
        (void *)EAGER},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef selector_members[] = {
    {"compiled", T_OBJECT, offsetof(Selector, way[COMPILED]), READONLY, "The compiled way."},
    {"eager", T_OBJECT, offsetof(Selector, way[EAGER]), READONLY, "The other way."},
    {"eager_is_least", T_BOOL, offsetof(Selector, by_least), READONLY, "Whether eager was not run: it takes longer."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject Selector_Type = {
    TYPE_OF(Selector),
    .tp_doc = "Selector(compiled, eager, *, pure, cuda, samples=3, margin=1.0, on_decision=None, least_eager_ns=0, "
              "wait_ns=0): calls whichever of the two is quicker; without samples the compiled one.",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = selector_new,
    COLLECTED(selector),
    .tp_repr = selector_repr,
    CALLED_BY_VECTOR(Selector),
    .tp_getset = selector_getset,
    .tp_members = selector_members,
};

int selector_init(PyObject *module)
{
    return PyModule_AddType(module, &Selector_Type);
}
