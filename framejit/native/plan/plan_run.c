/* Running a plan: one pass over its steps. */
#include "plan/plan.h"
#include "torch/tensor_owners.h"
#include "torch/tensor_spec.h"

enum { LOCAL_WORDS = 128 };               /* of C stack; plans of up to some fifty values fit */

/* Torch failed to allocate, and its C function only says that it did. Asked in Python it says why. */
static FJ_APART int empty_in_python(const EmptyStep *step, PlanValue *value)
{
    PyObject *torch = PyImport_ImportModule("torch"),
        *function = torch ? PyObject_GetAttrString(torch, "empty_strided") : NULL;
    PyObject *names = function ? Py_BuildValue("(ss)", "dtype", "device") : NULL;
    PyObject *made = names ? PyObject_Vectorcall(function, &PyTuple_GET_ITEM(step->arguments, 0), 2, names) : NULL;
    Py_XDECREF(names);
    Py_XDECREF(function);
    Py_XDECREF(torch);
    if (made == NULL)
        return -1;
    value->object = made;
    value->handle = HANDLE(made);
    return 0;
}

static inline int run_empty(const EmptyStep *step, PlanValue *value)
{
    const Shape *shape = &step->shape;
    if (FJ_LIKELY(fj_shim.empty_strided(shape->ndim, shape->sizes, shape->strides, step->dtype, step->device_type,
        step->device_index, &value->handle) == 0))
        return 0;
    value->handle = NULL;
    return empty_in_python(step, value);
}

/* Not a view: the plan's values are tensors of their own that share memory. */
static FJ_APART int reinterpret_in_python(const ReinterpretStep *step, PlanValue *base, PlanValue *made)
{
    PyObject *sizes = PyTuple_GET_ITEM(step->arguments, 0), *strides = PyTuple_GET_ITEM(step->arguments, 1),
        *dtype = PyTuple_GET_ITEM(step->arguments, 3);
    PyObject *tensor = plan_value_object(base), *torch = tensor ? PyImport_ImportModule("torch") : NULL;
    PyObject *empty = torch ? PyObject_GetAttrString(torch, "empty") : NULL,
        *device = empty ? PyObject_GetAttrString(tensor, "device") : NULL;
    PyObject *none = device ? Py_BuildValue("(i)", 0) : NULL,
        *options = none ? Py_BuildValue("{sOsO}", "dtype", dtype, "device", device) : NULL;
    PyObject *other = options ? PyObject_Call(empty, none, options) : NULL;
    PyObject *mine = other ? PyObject_CallMethod(tensor, "element_size", NULL) : NULL,
        *theirs = mine ? PyObject_CallMethod(other, "element_size", NULL) : NULL;
    PyObject *start = theirs ? PyObject_CallMethod(tensor, "storage_offset", NULL) : NULL;
    PyObject *storage = start ? PyObject_CallMethod(tensor, "untyped_storage", NULL) : NULL;
    PyObject *result = NULL;
    if (storage && PyObject_RichCompareBool(mine, theirs, Py_EQ) != 1)
        PyErr_SetString(PyExc_RuntimeError, "a value's storage cannot be read as a dtype of another size");
    else if (storage)
        result = PyObject_CallMethod(other, "set_", "OLOO", storage, PyLong_AsLongLong(start) + (long long)step->offset,
            sizes, strides);
    PyObject *const used[] = {torch, empty, device, none, options, other, mine, theirs, start, storage};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(used); i++)
        Py_XDECREF(used[i]);
    if (result == NULL)
        return -1;
    made->object = result;
    made->handle = HANDLE(result);
    return 0;
}

static int run_reinterpret(const ReinterpretStep *step, PlanValue *values)
{
    PlanValue *made = &values[step->slot];
    TensorHandle base = values[step->base].handle;
    if (base == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "a value's storage cannot be shared by another tensor");
        return -1;
    }
    if (FJ_UNLIKELY(fj_shim.reinterpret(base, step->shape.ndim, step->shape.sizes, step->shape.strides, step->offset,
        &made->handle))) {
        made->handle = NULL;
        return reinterpret_in_python(step, &values[step->base], made);
    }
    /* The new tensor has the dtype of its base, and no exported function makes one of another. It is ours alone as
       yet. */
    uint16_t *dtype = &FIELD(*(char **)made->handle, uint16_t, fj_torch.dtype);
    if (*dtype != step->dtype) {
        if (fj_shim.dtype_size(*dtype) != fj_shim.dtype_size(step->dtype)) {
            PyErr_SetString(PyExc_RuntimeError, "a value's storage cannot be read as a dtype of another size");
            return -1;
        }
        *dtype = (uint16_t)step->dtype;
    }
    return 0;
}

/* Only a call that consumes its inputs may be the last to hold one. */
static int run_inherit(const InheritStep *step, PlanValue *values)
{
    PlanValue *input = &values[step->over.base];
    int64_t bytes;
    int ours = Py_REFCNT(input->object) == 1 && tensor_is_held_once(input->object) && fj_shim.storage_bytes
        && fj_shim.storage_bytes(input->handle, &bytes) == 0 && bytes == step->bytes;
    return ours ? run_reinterpret(&step->over, values) : run_empty(&step->fresh, &values[step->fresh.slot]);
}

static int run_place(const PlaceStep *step, PlanValue *value)
{
    const Shape *shape = &step->shape;
    if (tensor_is_held_once(step->tensor)
        && fj_shim.reinterpret(HANDLE(step->tensor), shape->ndim, shape->sizes, shape->strides, 0, &value->handle) == 0)
        return 0;
    value->handle = NULL;
    return PLAN_DIVERTED;
}

static inline int run_step(const PlanStep *step, PlanValue *values, void **scratch)
{
    switch (step->kind) {
    case STEP_EMPTY:
        return run_empty(&step->empty, &values[step->empty.slot]);
    case STEP_REINTERPRET:
        return run_reinterpret(&step->reinterpret, values);
    case STEP_INHERIT:
        return run_inherit(&step->inherit, values);
    case STEP_PLACE:
        return run_place(&step->place, &values[step->place.slot]);
    case STEP_CPU:
        for (int i = 0; i < step->cpu.n_tensors; i++)
            if (plan_value_data(&values[step->cpu.tensors[i]], &scratch[i]) < 0)
                return -1;
        run_cpu(&step->cpu, (char *const *)scratch);
        return 0;
    case STEP_CUDA:
        return run_cuda(&step->cuda, values, scratch);
    case STEP_READY:
        return run_ready(step->ready);
    case STEP_GRAPH:
        return run_graph(&step->graph, values, scratch);
    case STEP_CALL:
        return run_call(&step->call, values, scratch);
    case STEP_EXPECT:
        return run_expect(&step->expect, &values[step->expect.slot]);
    case STEP_CONSTANT:
        run_constant(&step->constant, &values[step->constant.slot]);
        return 0;
    case STEP_FREE:
        plan_value_drop(&values[step->slot]);
        return 0;
    }
    Py_UNREACHABLE();
}

int plan_run_step(const PlanStep *step, PlanValue *values, void **scratch)
{
    return run_step(step, values, scratch);
}

static PyObject *collect_outputs(const Plan *plan, PlanValue *values)
{
    PyObject *tuple = PyTuple_New(plan->n_outputs);
    for (int i = 0; tuple && i < plan->n_outputs; i++) {
        const CallArg *output = &plan->outputs[i];
        PyObject *object = output->kind == ARG_VALUE ? plan_value_object(&values[output->slot]) : output->constant;
        if (object == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, Py_NewRef(object));
    }
    return tuple;
}

/* `list`: holds the inputs and is emptied, or NULL where our caller goes on holding them. NULL without an exception
 * where the fallback is to run. */
static PyObject *run_plan(const Plan *plan, PyObject *const *args, PyObject *list, PlanValue *values, void **scratch)
{
    int n_inputs = plan->n_inputs, first_held = n_inputs;       /* before it, values are borrowed */
    for (int i = 0; i < n_inputs; i++)
        values[i] = (PlanValue){HANDLE(args[i]), args[i]};
    if (plan->frees_inputs || list) {
        first_held = 0;
        for (int i = 0; i < n_inputs; i++)
            Py_INCREF(args[i]);
    }
    memset(values + n_inputs, 0, (plan->n_values - n_inputs) * sizeof(PlanValue));
    int status = list ? PyList_SetSlice(list, 0, n_inputs, NULL) : 0;
    for (int i = 0; i < plan->n_steps && status == 0; i++)
        status = run_step(&plan->steps[i], values, scratch);
    PyObject *result = status == 0 ? collect_outputs(plan, values) : NULL;
    for (int i = first_held; i < plan->n_values; i++)
        plan_value_drop(&values[i]);
    return result;
}

static PyObject *run_in_memory(const Plan *plan, PyObject *const *args, PyObject *list)
{
    size_t words = (size_t)plan->n_values * (sizeof(PlanValue) / sizeof(void *)) + plan->n_scratch;
    void *local[LOCAL_WORDS], **block = local;
    if (FJ_UNLIKELY(words > LOCAL_WORDS) && (block = PyMem_Malloc(words * sizeof(void *))) == NULL)
        return PyErr_NoMemory();
    PlanValue *values = (PlanValue *)block;
    PyObject *result = run_plan(plan, args, list, values, (void **)(values + plan->n_values));
    if (block != local)
        PyMem_Free(block);
    return result;
}

/* Whether the plan can run with these inputs, as plan_accept() says. */
int plan_check_call(const Plan *plan, PyObject *const *args, Py_ssize_t n_args, int has_names)
{
    if (FJ_UNLIKELY(plan->keep == NULL)) {
        PyErr_SetString(PyExc_RuntimeError, "this plan was cleared by the garbage collector");
        return -1;
    }
    if (FJ_UNLIKELY(n_args != plan->n_inputs || has_names)) {
        PyErr_Format(PyExc_TypeError, "%R takes %d positional arguments (%zd given)", plan, plan->n_inputs, n_args);
        return -1;
    }
    return plan_accept(plan, args);
}

/* Run the plan with copies of the inputs that are not aligned, or NULL without an exception: the fallback is to run. */
static PyObject *run_with_copies(const Plan *plan, PyObject *const *args)
{
    PyObject *list = plan_aligned_inputs(plan, args), *result = NULL;
    if (list && plan_accept(plan, PySequence_Fast_ITEMS(list)) == 1)
        result = run_in_memory(plan, PySequence_Fast_ITEMS(list), list);
    Py_XDECREF(list);
    return result;
}

PyObject *plan_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const Plan *plan = (Plan *)self;
    int accepted = plan_check_call(plan, args, PyVectorcall_NARGS(nargsf), kwnames && PyTuple_GET_SIZE(kwnames));
    if (FJ_UNLIKELY(accepted <= 0))
        return accepted < 0 ? NULL : PyObject_Vectorcall(plan->fallback, args, nargsf, NULL);
    PyObject *result = FJ_LIKELY(accepted == 1) ? run_in_memory(plan, args, NULL) : run_with_copies(plan, args);
    if (FJ_UNLIKELY(result == NULL) && !PyErr_Occurred())
        return PyObject_Vectorcall(plan->fallback, args, nargsf, NULL);
    return result;
}

PyObject *plan_consume(PyObject *self, PyObject *list)
{
    const Plan *plan = (Plan *)self;
    if (!PyList_CheckExact(list)) {
        PyErr_Format(PyExc_TypeError, "a list of inputs can be consumed, a %s can not", Py_TYPE(list)->tp_name);
        return NULL;
    }
    int accepted = plan_check_call(plan, PySequence_Fast_ITEMS(list), PyList_GET_SIZE(list), 0);
    if (accepted < 0)
        return NULL;
    if (accepted == 1 && !plan->diverts)
        return run_in_memory(plan, PySequence_Fast_ITEMS(list), list);
    if (accepted == PLAN_UNALIGNED && !plan->diverts) {
        PyObject *copied = plan_aligned_inputs(plan, PySequence_Fast_ITEMS(list)), *result = NULL;
        int runs = copied && plan_accept(plan, PySequence_Fast_ITEMS(copied)) == 1;
        if (runs && PyList_SetSlice(list, 0, PyList_GET_SIZE(list), NULL) == 0)
            result = run_in_memory(plan, PySequence_Fast_ITEMS(copied), copied);
        Py_XDECREF(copied);
        if (runs || PyErr_Occurred())
            return result;
    }
    PyObject *inputs = PyList_AsTuple(list), *result = NULL;
    if (inputs && PyList_SetSlice(list, 0, PyList_GET_SIZE(list), NULL) == 0)
        result = PyObject_CallObject(plan->fallback, inputs);
    Py_XDECREF(inputs);
    return result;
}
