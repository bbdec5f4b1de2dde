/* A plan for other sizes, made of one that was built: it shares all with that but the steps in which sizes stand. */
#include "plan/plan_builder.h"

static int same_arguments(const CallArg *a, const CallArg *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a[i].kind != b[i].kind || (a[i].kind == ARG_VALUE && a[i].slot != b[i].slot)
            || ((a[i].kind == ARG_TUPLE || a[i].kind == ARG_LIST)
                && (a[i].n_items != b[i].n_items || !same_arguments(a[i].items, b[i].items, a[i].n_items))))
            return 0;
    return 1;
}

static int same_call(const CallStep *a, const CallStep *b)
{
    return a->n_args == b->n_args && a->n_results == b->n_results && a->unpack == b->unpack
        && same_arguments(a->args, b->args, a->n_args)
        && memcmp(a->results, b->results, a->n_results * sizeof(int)) == 0;
}

static int same_pointers(const CudaStep *a, const CudaStep *b)
{
    int same = a->n_args == b->n_args;
    for (int i = 0; same && i < a->n_args; i++)
        same = a->args[i].slot == b->args[i].slot;
    return same;
}

/* Whether a step reads and writes the slots that another does: that these hold values then was checked for that one. */
static int same_slots(const PlanStep *a, const PlanStep *b)
{
    if (a->kind != b->kind)
        return 0;
    switch (a->kind) {
    case STEP_EMPTY:
        return a->empty.slot == b->empty.slot;
    case STEP_REINTERPRET:
        return a->reinterpret.slot == b->reinterpret.slot && a->reinterpret.base == b->reinterpret.base;
    case STEP_INHERIT:
        return a->inherit.over.slot == b->inherit.over.slot && a->inherit.over.base == b->inherit.over.base;
    case STEP_CPU:
        return a->cpu.n_tensors == b->cpu.n_tensors
            && memcmp(a->cpu.tensors, b->cpu.tensors, a->cpu.n_tensors * sizeof(int)) == 0;
    case STEP_CUDA:
        return same_pointers(&a->cuda, &b->cuda);
    case STEP_GRAPH:
    case STEP_PLACE:
    case STEP_READY:
        return 0;                         /* launch graphs are of one size */
    case STEP_CALL:
        return same_call(&a->call, &b->call);
    case STEP_EXPECT:
        return a->expect.slot == b->expect.slot;
    case STEP_CONSTANT:
        return a->constant.slot == b->constant.slot;
    case STEP_FREE:
        return a->slot == b->slot;
    }
    Py_UNREACHABLE();
}

static int replace_step(Plan *plan, const Plan *base, char *flags, PyObject *change)
{
    Py_ssize_t number;
    PyObject *description;
    if (!PyTuple_Check(change)) {
        PyErr_SetString(PyExc_TypeError, "a change is a pair: the number of a step, and its description");
        return -1;
    }
    if (!PyArg_ParseTuple(change, "nO:change of a step", &number, &description))
        return -1;
    if (number < 0 || number >= base->n_steps) {
        PyErr_Format(PyExc_IndexError, "step %zd of %d", number, base->n_steps);
        return -1;
    }
    memset(flags, 1, plan->n_values);             /* any slot can be read, and written */
    memset(flags + plan->n_values, 0, plan->n_values);
    PlanBuilder b = {plan, flags, flags + plan->n_values};
    PlanStep step = {0};
    if (plan_build_step(&b, description, &step) < 0)
        return -1;
    if (!same_slots(&step, &base->steps[number])) {
        PyErr_Format(PyExc_ValueError, "%R does not read and write what step %zd does", description, number);
        return -1;
    }
    plan->steps[number] = step;
    return 0;
}

static int replace_steps(Plan *plan, const Plan *base, PyObject *changes)
{
    PyObject *list = PySequence_Fast(changes, "changes are given as a list");
    char *flags = list ? PyMem_Malloc(2 * (size_t)plan->n_values + 1) : NULL;
    int status = flags ? 0 : -1;
    if (list && flags == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; status == 0 && i < PySequence_Fast_GET_SIZE(list); i++)
        status = replace_step(plan, base, flags, PySequence_Fast_GET_ITEM(list, i));
    PyMem_Free(flags);
    Py_XDECREF(list);
    return status;
}

/* Outputs that are values stay the same slots; constants may be other ones. */
static int replace_outputs(Plan *plan, const Plan *base, PyObject *outputs)
{
    PyObject *list = PySequence_Fast(outputs, "outputs are given as a list");
    if (list == NULL)
        return -1;
    int status = PySequence_Fast_GET_SIZE(list) == base->n_outputs ? 0 : -1;
    if (status == 0)
        status = (plan->outputs = plan_allocate(plan, base->n_outputs, sizeof(CallArg))) ? 0 : -1;
    else
        PyErr_Format(PyExc_ValueError, "%zd outputs in place of %d", PySequence_Fast_GET_SIZE(list), base->n_outputs);
    for (int i = 0; status == 0 && i < base->n_outputs; i++) {
        plan->outputs[i] = base->outputs[i];
        PyObject *output = PySequence_Fast_GET_ITEM(list, i);
        int is_value = Py_IS_TYPE(output, &Value_Type);
        if (is_value != (base->outputs[i].kind == ARG_VALUE)
            || (is_value && value_index(output) != base->outputs[i].slot)) {
            PyErr_Format(PyExc_ValueError, "output %d is another value", i);
            status = -1;
        }
        else if (!is_value) {
            plan->outputs[i].constant = output;
            status = PyList_Append(plan->keep, output);
        }
    }
    Py_DECREF(list);
    return status;
}

static int replace_spans(Plan *plan, const Plan *base, PyObject *spans)
{
    Py_ssize_t n_spans;
    if (base->spans == NULL || PyObject_Size(spans) == 0)
        return PyErr_Occurred() ? -1 : 0;
    if ((plan->spans = plan_read_integers(plan, spans, &n_spans)) == NULL)
        return -1;
    if (n_spans == plan->n_inputs)
        return 0;
    PyErr_Format(PyExc_ValueError, "%zd spans for %d inputs", n_spans, plan->n_inputs);
    return -1;
}

PyObject *plan_for_sizes(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"changes", "outputs", "spans", "fallback", NULL};
    PyObject *changes, *outputs, *spans, *fallback;
    const Plan *base = (Plan *)self;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO:for_sizes", names, &changes, &outputs, &spans, &fallback))
        return NULL;
    if (base->keep == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this plan was cleared by the garbage collector");
        return NULL;
    }
    if (!PyCallable_Check(fallback)) {
        PyErr_SetString(PyExc_TypeError, "a plan needs a callable 'fallback'");
        return NULL;
    }
    Plan *plan = (Plan *)Py_TYPE(self)->tp_alloc(Py_TYPE(self), 0);
    if (plan == NULL)
        return NULL;
    size_t own = offsetof(Plan, vectorcall);
    memcpy((char *)plan + own, (const char *)base + own, sizeof(Plan) - own);
    plan->blocks = NULL;
    plan->keep = NULL;
    plan->name = Py_NewRef(base->name);
    plan->fallback = Py_NewRef(fallback);
    plan->aligned_copy = Py_XNewRef(base->aligned_copy);
    plan->keep = PyList_New(0);
    if (plan->keep == NULL || PyList_Append(plan->keep, self) < 0
        || (plan->steps = plan_allocate(plan, base->n_steps, sizeof(PlanStep))) == NULL) {
        Py_DECREF(plan);
        return NULL;
    }
    memcpy(plan->steps, base->steps, base->n_steps * sizeof(PlanStep));
    if (replace_steps(plan, base, changes) < 0 || replace_outputs(plan, base, outputs) < 0
        || replace_spans(plan, base, spans) < 0)
        Py_CLEAR(plan);
    return (PyObject *)plan;
}
