/* The Python types of plan.h: Plan, and Value, which stands for a value of the plan in the description that a plan is
 * built from. */
#include "plan/plan.h"
#include "torch/tensor_spec.h"

/* ---- Value ---- */
typedef struct {
    PyObject_HEAD
    int index;
} Value;

int value_index(PyObject *value)
{
    return ((Value *)value)->index;
}

static PyObject *value_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"index", NULL};
    int index;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i:Value", names, &index))
        return NULL;
    Value *value = (Value *)type->tp_alloc(type, 0);
    if (value)
        value->index = index;
    return (PyObject *)value;
}

static PyObject *value_repr(PyObject *self)
{
    return PyUnicode_FromFormat("Value(%d)", value_index(self));
}

static PyObject *value_compare(PyObject *self, PyObject *other, int operation)
{
    if (!Py_IS_TYPE(other, &Value_Type) || (operation != Py_EQ && operation != Py_NE))
        Py_RETURN_NOTIMPLEMENTED;
    return PyBool_FromLong((value_index(self) == value_index(other)) == (operation == Py_EQ));
}

static Py_hash_t value_hash(PyObject *self)
{
    int index = value_index(self);
    return index == -1 ? -2 : index;
}

static PyMemberDef value_members[] = {
    {"index", T_INT, offsetof(Value, index), READONLY, "The slot."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject Value_Type = {
    TYPE_OF(Value),
    .tp_doc = "Value(index): the value in a slot of a plan.",
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = value_new,
    .tp_repr = value_repr,
    .tp_richcompare = value_compare,
    .tp_hash = value_hash,
    .tp_members = value_members,
};

/* ---- Plan ---- */
static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"n_inputs", "n_values", "steps", "outputs", "fallback", "aligned", "alone", "spans", "name",
        "fixed", "copied", "aligned_copy", NULL};
    int n_inputs, n_values;
    PyObject *steps, *outputs, *fallback = NULL, *aligned = NULL, *alone = NULL, *spans = NULL, *name = NULL,
        *fixed = NULL, *copied = NULL, *aligned_copy = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iiOO|$OOOOUOOO:Plan", names, &n_inputs, &n_values, &steps, &outputs,
        &fallback, &aligned, &alone, &spans, &name, &fixed, &copied, &aligned_copy))
        return NULL;
    if (fallback == NULL || !PyCallable_Check(fallback)) {
        PyErr_SetString(PyExc_TypeError, "a plan needs a callable 'fallback'");
        return NULL;
    }
    if (copied && (aligned_copy == NULL || !PyCallable_Check(aligned_copy))) {
        PyErr_SetString(PyExc_TypeError, "a plan that copies inputs needs a callable 'aligned_copy'");
        return NULL;
    }
    if (n_inputs < 0 || n_values < n_inputs) {
        PyErr_Format(PyExc_ValueError, "%d values cannot hold %d inputs", n_values, n_inputs);
        return NULL;
    }
    if (torch_shim_load() < 0)
        return NULL;
    if (fj_torch.impl < 0 || fj_torch.dtype < 0 || !fj_torch.get_dim || !fj_torch.get_sizes || !fj_torch.get_strides) {
        PyErr_SetString(fj_plan_unsupported, "it is not known where this torch keeps what a tensor consists of");
        return NULL;
    }
    Plan *plan = (Plan *)type->tp_alloc(type, 0);
    if (plan == NULL)
        return NULL;
    plan->vectorcall = plan_call;
    plan->n_inputs = n_inputs;
    plan->n_values = n_values;
    plan->fallback = Py_NewRef(fallback);
    plan->aligned_copy = Py_XNewRef(aligned_copy);
    plan->name = name ? Py_NewRef(name) : PyUnicode_FromString("");
    plan->keep = PyList_New(0);
    if (plan->name == NULL || plan->keep == NULL || plan_build(plan, steps, outputs, aligned, copied, alone, spans, fixed) < 0)
        Py_CLEAR(plan);
    return (PyObject *)plan;
}

static int plan_traverse(PyObject *self, visitproc visit, void *arg)
{
    Plan *plan = (Plan *)self;
    Py_VISIT(plan->keep);
    Py_VISIT(plan->fallback);
    Py_VISIT(plan->aligned_copy);
    return 0;
}

static int plan_clear(PyObject *self)
{
    Plan *plan = (Plan *)self;
    Py_CLEAR(plan->keep);
    Py_CLEAR(plan->fallback);
    Py_CLEAR(plan->aligned_copy);
    return 0;
}

static void plan_dealloc(PyObject *self)
{
    Plan *plan = (Plan *)self;
    PyObject_GC_UnTrack(self);
    plan_clear(self);
    Py_CLEAR(plan->name);
    plan_free_blocks(plan);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *plan_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<Plan '%U'>", ((Plan *)self)->name);
}

static PyMemberDef plan_members[] = {
    {"name", T_OBJECT, offsetof(Plan, name), READONLY, "For messages."},
    {"fallback", T_OBJECT, offsetof(Plan, fallback), READONLY, "What runs the calls that the plan cannot run."},
    {"n_inputs", T_INT, offsetof(Plan, n_inputs), READONLY, "How many tensors it takes."},
    {"n_steps", T_INT, offsetof(Plan, n_steps), READONLY, "How many steps it consists of."},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef plan_methods[] = {
    {"consume", plan_consume, METH_O,
     "consume(inputs: list) -> tuple: a call that takes the inputs out of the list and lets go of each after its last "
     "use."},
    {"for_sizes", (PyCFunction)(void (*)(void))plan_for_sizes, METH_VARARGS | METH_KEYWORDS,
     "for_sizes(changes, outputs, spans, fallback) -> Plan: one that differs in some steps, which have other sizes."},
    {"traced", plan_traced, METH_VARARGS,
     "traced(inputs, wanted, device) -> (launches, tensors): a call while a CUDA graph is captured."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject Plan_Type = {
    TYPE_OF(Plan),
    .tp_doc =
    "Plan(n_inputs, n_values, steps, outputs, *, fallback, aligned=(), alone=(), spans=(), name='', fixed=(), copied=(), "
    "aligned_copy=None): a compiled graph, run without Python between its kernels.",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, .tp_new = plan_new,
    COLLECTED(plan),
    .tp_repr = plan_repr,
    CALLED_BY_VECTOR(Plan),
    .tp_members = plan_members,
    .tp_methods = plan_methods,
};

int plan_init(PyObject *module)
{
    return torch_shim_init(module) < 0 || PyModule_AddType(module, &Value_Type) < 0
        || PyModule_AddType(module, &CudaGraph_Type) < 0 || PyModule_AddType(module, &LaunchGraph_Type) < 0 ? -1
        : PyModule_AddType(module, &Plan_Type);
}
