/* Region: the switch that keeps a compiled region only while it is worth it.
 *
 * The first calls measure both ways; then the quicker one is called for good, and all that is left of the region is one
 * indirect call. A region without side effects runs both ways on the same inputs (the caller gets the compiled result),
 * one with side effects takes turns, so that nothing ever happens twice. Devices run behind the program: their clocks
 * are read when they are ready, on a later call, and nothing waits for them. */
#include "native.h"
#include "torch/device_timer.h"
#include "torch/tensor_spec.h"
#include "torch/torch_warnings.h"
#include <time.h>

enum { MAX_SAMPLES = 1000, DEVICE_TYPE_CUDA = 1 };
static const int64_t SHORT_NS = 20000;             /* below this noise is a larger share */
static const double SHORT_NOISE = 1.05, NOISE = 1.03, CLOCK_NOISE_NS = 30;

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
} Region;

static PyObject *forward(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return PyObject_Vectorcall(((Region *)self)->target, args, nargsf, kwnames);
}

/* ---- deciding ---- */
static void forget_samples(Region *region)
{
    Sample *samples = region->samples;
    region->samples = NULL;
    for (int i = 0; samples && i < region->n_taken; i++)
        span_free(&samples[i].span);
    PyMem_Free(samples);
}

static void decide(Region *region, Way way)
{
    region->decided = way;
    region->target = region->way[way];
    region->vectorcall = forward;
    forget_samples(region);
    PyObject *told = region->on_decision;
    region->on_decision = NULL;
    if (told == NULL)
        return;
    /* the program's own call goes on whatever becomes of this one, and in whatever state */
    SavedError error = error_save();
    PyObject *result = PyObject_CallOneArg(told, (PyObject *)region);
    if (result == NULL)
        PyErr_WriteUnraisable(told);
    Py_XDECREF(result);
    Py_DECREF(told);
    error_restore(error);
}

/* Writes the best times, of the host or of whichever of the host and the device is later. 0: the device is not
 * ready. */
static int read_samples(Region *region)
{
    int64_t device_ns[2] = {-1, -1}, host_ns[2] = {-1, -1};
    int on_device = region->cuda;
    for (int i = 0; i < region->n_taken; i++) {
        const Sample *sample = &region->samples[i];
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
    memcpy(region->best, on_device ? device_ns : host_ns, sizeof(region->best));
    return 1;
}

static void try_to_decide(Region *region)
{
    if (!read_samples(region))
        return;
    double compiled = (double)region->best[COMPILED], eager = (double)region->best[EAGER];
    double noise = region->best[EAGER] < SHORT_NS ? SHORT_NOISE : NOISE;
    decide(region, eager * noise + CLOCK_NOISE_NS < compiled * region->margin ? EAGER : COMPILED);
}

/* ---- measuring ---- */
static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

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
static int sample_begin(const Region *region, Sample *sample, Way way, PyObject *const *args, size_t nargsf,
    PyObject *kwnames)
{
    *sample = (Sample){way};
    if (!region->cuda || fj_torch.impl < 0 || !fj_torch.get_device_type || !fj_torch.get_device_index)
        return 1;
    int device = device_of(args, PyVectorcall_NARGS(nargsf) + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0));
    return device < 0 || span_begin(&sample->span, device) != DEVICE_CAPTURING;
}

/* Runs what the sample was opened for. It counts only if that succeeds. */
static PyObject *run_timed(Region *region, Sample *sample, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    int64_t start = now();
    PyObject *result = PyObject_Vectorcall(region->way[sample->way], args, nargsf, kwnames);
    sample->host_ns = now() - start;
    span_end(&sample->span);
    if (result)
        region->samples[region->n_taken++] = *sample;
    else
        span_free(&sample->span);
    return result;
}

/* A compiled run that decides if it warns. */
static PyObject *run_warned(Region *region, Sample *sample, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    unsigned long given = fj_warnings_given;
    warnings_count_begin();
    PyObject *result = run_timed(region, sample, args, nargsf, kwnames);
    warnings_count_end();
    if (result && given != fj_warnings_given)
        decide(region, COMPILED);
    return result;
}

/* Both ways, and the compiled one's result. Where that one warns the other would warn again. */
static PyObject *measure_both(Region *region, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Sample sample;
    int taken = region->n_taken;
    if (!sample_begin(region, &sample, COMPILED, args, nargsf, kwnames))
        return PyObject_Vectorcall(region->way[COMPILED], args, nargsf, kwnames);
    PyObject *result = run_warned(region, &sample, args, nargsf, kwnames), *other = NULL;
    if (result == NULL || region->target)
        return result;
    if (sample_begin(region, &sample, EAGER, args, nargsf, kwnames)) {
        other = run_timed(region, &sample, args, nargsf, kwnames);
        if (other == NULL && !PyErr_ExceptionMatches(PyExc_Exception))
            Py_CLEAR(result);                      /* the user interrupted it */
        else if (other == NULL) {
            PyErr_Clear();                         /* whether this call raises the compiled run has said */
            decide(region, COMPILED);
        }
        Py_XDECREF(other);
    }
    if (region->samples && region->n_taken == taken + 1)       /* a pair or nothing */
        span_free(&region->samples[--region->n_taken].span);
    return result;
}

static PyObject *measure_in_turn(Region *region, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Sample sample;
    if (!sample_begin(region, &sample, region->n_taken % 2 ? EAGER : COMPILED, args, nargsf, kwnames))
        return PyObject_Vectorcall(region->way[COMPILED], args, nargsf, kwnames);
    return run_timed(region, &sample, args, nargsf, kwnames);
}

static PyObject *measure(Region *region, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *result;
    if (!region->warm) {
        result = PyObject_Vectorcall(region->way[COMPILED], args, nargsf, kwnames);
        region->warm = result != NULL;
        return result;
    }
    if (region->n_taken == region->n_samples) {    /* the device was not ready when the last sample was taken */
        try_to_decide(region);
        return PyObject_Vectorcall(region->target ? region->target : region->way[COMPILED], args, nargsf, kwnames);
    }
    result = region->pure ? measure_both(region, args, nargsf, kwnames)
        : measure_in_turn(region, args, nargsf, kwnames);
    if (result && region->n_taken == region->n_samples)
        try_to_decide(region);
    return result;
}

static PyObject *region_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Region *region = (Region *)self;
    if (region->way[COMPILED] == NULL || region->way[EAGER] == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this region was cleared by the garbage collector");
        return NULL;
    }
    if (region->measuring)                         /* another thread is at it, or the region runs inside itself */
        return PyObject_Vectorcall(region->way[COMPILED], args, nargsf, kwnames);
    region->measuring = 1;
    PyObject *result = measure(region, args, nargsf, kwnames);
    region->measuring = 0;
    return result;
}

/* ---- the Python object ---- */
static PyObject *region_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"compiled", "eager", "pure", "cuda", "samples", "margin", "on_decision", NULL};
    PyObject *compiled, *eager, *on_decision = Py_None;
    int pure = -1, cuda = -1, samples = 3;
    double margin = 1.0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$ppidO:Region", names, &compiled, &eager, &pure, &cuda, &samples,
        &margin, &on_decision))
        return NULL;
    if (pure < 0 || cuda < 0 || !PyCallable_Check(compiled) || !PyCallable_Check(eager)
        || (on_decision != Py_None && !PyCallable_Check(on_decision))) {
        PyErr_SetString(PyExc_TypeError, "a region takes two callables, and the keywords 'pure' and 'cuda'");
        return NULL;
    }
    if (samples < 1 || samples > MAX_SAMPLES || !(margin > 0)) {
        PyErr_Format(PyExc_ValueError, "a region takes 1 to %d samples and a positive margin", MAX_SAMPLES);
        return NULL;
    }
    Region *region = (Region *)type->tp_alloc(type, 0);
    if (region == NULL)
        return NULL;
    region->vectorcall = region_call;
    region->way[COMPILED] = Py_NewRef(compiled);
    region->way[EAGER] = Py_NewRef(eager);
    region->on_decision = on_decision == Py_None ? NULL : Py_NewRef(on_decision);
    region->pure = pure;
    region->cuda = cuda;
    region->margin = margin;
    region->best[COMPILED] = region->best[EAGER] = -1;
    region->n_samples = 2 * samples;
    if ((region->samples = PyMem_Calloc(region->n_samples, sizeof(Sample))) == NULL) {
        Py_DECREF(region);
        return PyErr_NoMemory();
    }
    return (PyObject *)region;
}

static int region_traverse(PyObject *self, visitproc visit, void *arg)
{
    Region *region = (Region *)self;
    Py_VISIT(region->way[COMPILED]);
    Py_VISIT(region->way[EAGER]);
    Py_VISIT(region->on_decision);
    return 0;
}

static int region_clear(PyObject *self)
{
    Region *region = (Region *)self;
    region->vectorcall = region_call;              /* which says that there is nothing to call */
    Py_CLEAR(region->way[COMPILED]);
    Py_CLEAR(region->way[EAGER]);
    Py_CLEAR(region->on_decision);
    return 0;
}

static void region_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    region_clear(self);
    forget_samples((Region *)self);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *get_state(PyObject *self, void *unused)
{
    (void)unused;
    Region *region = (Region *)self;
    return PyUnicode_FromString(region->target == NULL ? "measuring" : region->decided == EAGER ? "eager" : "compiled");
}

static PyObject *get_best(PyObject *self, void *way)
{
    int64_t best = ((Region *)self)->best[(intptr_t)way];
    return best < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(best);
}

static PyObject *region_repr(PyObject *self)
{
    Region *region = (Region *)self;
    PyObject *state = get_state(self, NULL);
    PyObject *text = state ? PyUnicode_FromFormat("<Region %U of %R>", state, region->way[COMPILED]) : NULL;
    Py_XDECREF(state);
    return text;
}

static PyGetSetDef region_getset[] = {
    {"state", get_state, NULL, "'measuring', 'compiled' or 'eager'.", NULL},
    {"compiled_ns", get_best, NULL, "The quickest compiled run measured, in nanoseconds, or None.", (void *)COMPILED},
    {"eager_ns", get_best, NULL, "The quickest eager run measured, in nanoseconds, or None.", (void *)EAGER},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef region_members[] = {
    {"compiled", T_OBJECT, offsetof(Region, way[COMPILED]), READONLY, "The compiled way."},
    {"eager", T_OBJECT, offsetof(Region, way[EAGER]), READONLY, "The other way."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject Region_Type = {
    TYPE_OF(Region),
    .tp_doc = "Region(compiled, eager, *, pure, cuda, samples=3, margin=1.0, on_decision=None): calls whichever of the "
              "two is quicker.",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = region_new,
    COLLECTED(region),
    .tp_repr = region_repr,
    CALLED_BY_VECTOR(Region),
    .tp_getset = region_getset,
    .tp_members = region_members,
};

int region_init(PyObject *module)
{
    return PyModule_AddType(module, &Region_Type);
}
