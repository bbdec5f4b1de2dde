/* SizeSwitch: calls what was compiled for the sizes of its arguments, as many sizes as matter. What it has not met
 * lately it asks for. */
#include "native.h"
#include "torch/tensor_spec.h"

enum { MAX_SIZES = 12, SLOTS = 64 };

typedef struct {
    int64_t sizes[MAX_SIZES];
    PyObject *run;                                 /* NULL: nothing yet */
} SizeSlot;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *miss;
    int n;
    struct { int argument, dim, is_stride; } places[MAX_SIZES];
    SizeSlot slots[SLOTS];
} SizeSwitch;

/* 1 if all sizes could be read where they lie, else 0. */
static int read_sizes(const SizeSwitch *self, PyObject *const *args, Py_ssize_t nargs, int64_t *sizes, uint64_t *hash)
{
    uint64_t mixed = 0;
    for (int i = 0; i < self->n; i++) {
        int argument = self->places[i].argument, dim = self->places[i].dim;
        if (argument >= nargs || !Py_IS_TYPE(args[argument], fj_torch.tensor_type))
            return 0;
        char *impl = IMPL(args[argument]);
        int64_t ndim = FIELD(impl, int64_t, fj_torch.ndim);
        if (dim >= ndim)
            return 0;
        sizes[i] = (self->places[i].is_stride ? direct_strides(impl, ndim) : direct_sizes(impl, ndim))[dim];
        /* 2^64 over the golden ratio: Knuth, TAOCP 3, 6.4 */
        mixed = (mixed ^ (uint64_t)sizes[i]) * 0x9E3779B97F4A7C15u;
    }
    *hash = mixed;
    return 1;
}

static PyObject *size_switch_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    SizeSwitch *self = (SizeSwitch *)object;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    int64_t sizes[MAX_SIZES];
    uint64_t hash = 0;
    SizeSlot *slot = NULL;
    if (FJ_UNLIKELY(self->miss == NULL)) {
        PyErr_SetString(PyExc_RuntimeError, "this SizeSwitch was cleared by the garbage collector");
        return NULL;
    }
    if (FJ_LIKELY(fj_tensor_access == ACCESS_DIRECT && read_sizes(self, args, nargs, sizes, &hash))) {
        slot = &self->slots[hash >> 58];
        if (FJ_LIKELY(slot->run != NULL && memcmp(slot->sizes, sizes, self->n * sizeof(int64_t)) == 0)) {
            PyObject *run = Py_NewRef(slot->run);
            PyObject *result = PyObject_Vectorcall(run, args, nargsf, kwnames);
            Py_DECREF(run);
            return result;
        }
    }
    PyObject *answer = PyObject_Vectorcall(self->miss, args, nargs, NULL);  /* (what to run, whether it is for good) */
    if (answer == NULL)
        return NULL;
    if (!PyTuple_Check(answer) || PyTuple_GET_SIZE(answer) != 2) {
        Py_DECREF(answer);
        PyErr_SetString(PyExc_TypeError, "SizeSwitch: miss must give a pair");
        return NULL;
    }
    PyObject *run = PyTuple_GET_ITEM(answer, 0);
    if (slot != NULL && self->miss != NULL && PyTuple_GET_ITEM(answer, 1) == Py_True) {
        PyObject *old = slot->run;
        memcpy(slot->sizes, sizes, sizeof(sizes));
        slot->run = Py_NewRef(run);
        Py_XDECREF(old);
    }
    PyObject *result = PyObject_Vectorcall(run, args, nargsf, kwnames);
    Py_DECREF(answer);
    return result;
}

static PyObject *size_switch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"places", "miss", NULL};
    PyObject *places, *miss;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O:SizeSwitch", names, &PyTuple_Type, &places, &miss))
        return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(places);
    if (n > MAX_SIZES) {
        PyErr_Format(PyExc_ValueError, "SizeSwitch: %zd sizes are more than %d", n, MAX_SIZES);
        return NULL;
    }
    SizeSwitch *self = (SizeSwitch *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->n = (int)n;
    self->vectorcall = size_switch_call;
    for (int i = 0; i < self->n; i++) {
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(places, i),
            "ii|p;SizeSwitch: places are (argument, dimension), and whether the stride is meant",
            &self->places[i].argument, &self->places[i].dim, &self->places[i].is_stride)) {
            Py_DECREF(self);
            return NULL;
        }
        if (self->places[i].argument < 0 || self->places[i].dim < 0) {
            Py_DECREF(self);
            PyErr_SetString(PyExc_ValueError, "SizeSwitch: arguments and dimensions count from 0");
            return NULL;
        }
    }
    self->miss = Py_NewRef(miss);
    return (PyObject *)self;
}

static int size_switch_traverse(PyObject *object, visitproc visit, void *arg)
{
    SizeSwitch *self = (SizeSwitch *)object;
    Py_VISIT(self->miss);
    for (int i = 0; i < SLOTS; i++)
        Py_VISIT(self->slots[i].run);
    return 0;
}

static int size_switch_clear(PyObject *object)
{
    SizeSwitch *self = (SizeSwitch *)object;
    Py_CLEAR(self->miss);
    for (int i = 0; i < SLOTS; i++)
        Py_CLEAR(self->slots[i].run);
    return 0;
}

static void size_switch_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    size_switch_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyMemberDef size_switch_members[] = {
    {"miss", T_OBJECT, offsetof(SizeSwitch, miss), READONLY, "What is asked for sizes that were not met lately."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject SizeSwitch_Type = {
    TYPE_OF(SizeSwitch),
    .tp_doc = "SizeSwitch(places, miss): calls what was compiled for the sizes that its arguments have at `places`.",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = size_switch_new,
    COLLECTED(size_switch),
    CALLED_BY_VECTOR(SizeSwitch),
    .tp_members = size_switch_members,
};

int size_switch_init(PyObject *module)
{
    return PyModule_AddType(module, &SizeSwitch_Type);
}
