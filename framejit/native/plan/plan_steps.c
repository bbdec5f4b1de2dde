/* The steps of a plan, each from its description: a tuple of its kind, left out below, and its parts. */
#include "plan/plan_builder.h"
#include "torch/cuda_driver.h"
#include "torch/tensor_spec.h"

static int need_scratch(Plan *plan, Py_ssize_t words)
{
    if (words > plan->n_scratch)
        plan->n_scratch = (int)words;
    return 0;
}

/* Steals object, which may be NULL with an exception; the plan holds it from now on. */
static int keep(PlanBuilder *b, PyObject *object)
{
    int status = object ? PyList_Append(b->plan->keep, object) : -1;
    Py_XDECREF(object);
    return status;
}

static int build_empty(PlanBuilder *b, PyObject *parts, PlanStep *step)
{
    PyObject *slot, *sizes, *strides, *dtype, *device;
    EmptyStep *empty = &step->empty;
    if (!PyArg_ParseTuple(parts, "OOOOO:empty", &slot, &sizes, &strides, &dtype, &device))
        return -1;
    step->kind = STEP_EMPTY;
    if (plan_write_slot(b, slot, &empty->slot) < 0 || plan_read_shape(b->plan, sizes, strides, &empty->shape) < 0
        || torch_dtype_number(dtype, &empty->dtype) < 0
        || torch_device_numbers(device, &empty->device_type, &empty->device_index) < 0)
        return -1;
    empty->arguments = PyTuple_GetSlice(parts, 1, PyTuple_GET_SIZE(parts));
    return keep(b, empty->arguments);
}

static int build_reinterpret(PlanBuilder *b, PyObject *parts, PlanStep *step)
{
    PyObject *slot, *base, *sizes, *strides, *dtype;
    long long offset;
    ReinterpretStep *view = &step->reinterpret;
    if (!PyArg_ParseTuple(parts, "OOOOLO:reinterpret", &slot, &base, &sizes, &strides, &offset, &dtype))
        return -1;
    step->kind = STEP_REINTERPRET;
    view->offset = offset;
    if (plan_read_slot(b, base, &view->base) < 0 || plan_write_slot(b, slot, &view->slot) < 0
        || plan_read_shape(b->plan, sizes, strides, &view->shape) < 0 || torch_dtype_number(dtype, &view->dtype) < 0)
        return -1;
    view->arguments = PyTuple_GetSlice(parts, 2, PyTuple_GET_SIZE(parts));
    return keep(b, view->arguments);
}

static int build_inherit(PlanBuilder *b, PyObject *parts, PlanStep *step)
{
    PyObject *slot, *input, *sizes, *strides, *dtype, *device;
    InheritStep *inherit = &step->inherit;
    EmptyStep *fresh = &inherit->fresh;
    ReinterpretStep *over = &inherit->over;
    if (!PyArg_ParseTuple(parts, "OOOOOOL:inherit", &slot, &input, &sizes, &strides, &dtype, &device, &inherit->bytes))
        return -1;
    step->kind = STEP_INHERIT;
    if (plan_read_slot(b, input, &over->base) < 0 || plan_write_slot(b, slot, &over->slot) < 0
        || plan_read_shape(b->plan, sizes, strides, &over->shape) < 0 || torch_dtype_number(dtype, &over->dtype) < 0
        || torch_device_numbers(device, &fresh->device_type, &fresh->device_index) < 0)
        return -1;
    if (over->base >= b->plan->n_inputs) {
        PyErr_SetString(PyExc_ValueError, "memory is inherited from inputs");
        return -1;
    }
    fresh->slot = over->slot;
    fresh->shape = over->shape;
    fresh->dtype = over->dtype;
    fresh->arguments = PyTuple_GetSlice(parts, 2, 6);
    over->arguments = Py_BuildValue("(OOiO)", sizes, strides, 0, dtype);
    return keep(b, fresh->arguments) < 0 || keep(b, over->arguments) < 0 ? -1 : 0;
}

static int build_place(PlanBuilder *b, PyObject *parts, PlanStep *step)
{
    PyObject *slot, *sizes, *strides;
    PlaceStep *place = &step->place;
    if (!PyArg_ParseTuple(parts, "OOOO:place", &slot, &sizes, &strides, &place->tensor))
        return -1;
    step->kind = STEP_PLACE;
    b->plan->diverts = 1;
    if (!fj_torch.tensor_type || !PyObject_TypeCheck(place->tensor, fj_torch.tensor_type)) {
        PyErr_SetString(PyExc_TypeError, "a place is the memory of a tensor");
        return -1;
    }
    if (plan_write_slot(b, slot, &place->slot) < 0 || plan_read_shape(b->plan, sizes, strides, &place->shape) < 0)
        return -1;
    return PyList_Append(b->plan->keep, place->tensor);
}

static int build_cpu(PlanBuilder *b, PyObject *parts, PlanStep *step)
{
    unsigned long long address;
    PyObject *tensors, *ints;
    long long total, grain;
    Py_ssize_t n_ints;
    CpuStep *cpu = &step->cpu;
    if (!PyArg_ParseTuple(parts, "KOOLL:cpu_kernel", &address, &tensors, &ints, &total, &grain))
        return -1;
    if (address == 0 || total < 0 || grain < 1) {
        PyErr_Format(PyExc_ValueError, "no kernel at address %llu can run over %lld with grain %lld", address, total,
            grain);
        return -1;
    }
    step->kind = STEP_CPU;
    cpu->kernel = (CpuKernel)(uintptr_t)address;
    cpu->total = total;
    cpu->grain = grain < INT64_MAX / 2 ? grain : INT64_MAX / 2;
    if ((cpu->tensors = plan_read_slots(b, tensors, &cpu->n_tensors)) == NULL
        || (cpu->ints = plan_read_integers(b->plan, ints, &n_ints)) == NULL)
        return -1;
    return need_scratch(b->plan, cpu->n_tensors);
}

int plan_read_constant(const char *kind, PyObject *number, CudaArg *arg)
{
    arg->slot = -1;
    if (strcmp(kind, "i32") == 0) {
        long long wide = PyLong_AsLongLong(number);
        arg->constant.i32 = (int32_t)wide;
        if (arg->constant.i32 != wide && !PyErr_Occurred())
            PyErr_Format(PyExc_OverflowError, "%lld does not fit in 32 bits", wide);
    }
    else if (strcmp(kind, "i64") == 0)
        arg->constant.i64 = PyLong_AsLongLong(number);
    else if (strcmp(kind, "f32") == 0)
        arg->constant.f32 = (float)PyFloat_AsDouble(number);
    else if (strcmp(kind, "f64") == 0)
        arg->constant.f64 = PyFloat_AsDouble(number);
    else if (strcmp(kind, "null") != 0)
        PyErr_Format(PyExc_ValueError, "'%s' is no kind of argument of a kernel", kind);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_cuda_arg(PlanBuilder *b, PyObject *description, CudaArg *arg)
{
    PyObject *number = Py_None;
    const char *kind;
    if (!PyTuple_Check(description)) {
        PyErr_Format(PyExc_TypeError, "%R is no argument of a kernel", description);
        return -1;
    }
    if (!PyArg_ParseTuple(description, "s|O:argument of a cuda_kernel", &kind, &number))
        return -1;
    return strcmp(kind, "p") == 0 ? plan_read_slot(b, number, &arg->slot) : plan_read_constant(kind, number, arg);
}

static int build_cuda(PlanBuilder *b, PyObject *parts, PlanStep *step)
{
    unsigned long long function;
    PyObject *args;
    int x, y, z, threads, shared_bytes;
    CudaStep *cuda = &step->cuda;
    if (!PyArg_ParseTuple(parts, "K(iii)iiO!ip:cuda_kernel", &function, &x, &y, &z, &threads, &shared_bytes,
        &PyTuple_Type, &args, &cuda->device_index, &cuda->waits))
        return -1;
    if (x < 0 || y < 0 || z < 0 || threads < 1 || shared_bytes < 0) {
        PyErr_Format(PyExc_ValueError, "no kernel can run on a grid of (%d, %d, %d) with %d threads and %d bytes", x, y,
            z, threads, shared_bytes);
        return -1;
    }
    step->kind = STEP_CUDA;
    cuda->function = (void *)(uintptr_t)function;
    memcpy(cuda->grid, (unsigned[]){x, y, z}, sizeof(cuda->grid));
    cuda->threads = threads;
    cuda->shared_bytes = shared_bytes;
    cuda->n_args = (int)PyTuple_GET_SIZE(args);
    if (cuda_context(cuda->device_index, &cuda->context) < 0
        || (cuda->args = plan_allocate(b->plan, cuda->n_args, sizeof(CudaArg))) == NULL)
        return -1;
    for (int i = 0; i < cuda->n_args; i++)
        if (read_cuda_arg(b, PyTuple_GET_ITEM(args, i), &cuda->args[i]) < 0)
            return -1;
    return need_scratch(b->plan, 2 * (Py_ssize_t)cuda->n_args);
}

static int build_ready(PlanBuilder *b, PyObject *parts, PlanStep *step)
{
    step->kind = STEP_READY;
    b->plan->diverts = 1;
    return PyArg_ParseTuple(parts, "O!:ready", &LaunchGraph_Type, &step->ready)
        && PyList_Append(b->plan->keep, step->ready) == 0 ? 0 : -1;
}

static int build_graph(PlanBuilder *b, PyObject *parts, PlanStep *step)
{
    GraphStep *graph = &step->graph;
    step->kind = STEP_GRAPH;
    b->plan->diverts = 1;
    if (plan_build_graph(b, parts, graph) < 0 || PyList_Append(b->plan->keep, graph->graph) < 0)
        return -1;
    return need_scratch(b->plan, (Py_ssize_t)graph->n_pointers + graph->n_in + graph->n_out);
}

static int build_results(PlanBuilder *b, PyObject *results, CallStep *call)
{
    call->unpack = PyTuple_Check(results);
    call->n_results = call->unpack ? (int)PyTuple_GET_SIZE(results) : results != Py_None;
    if ((call->results = plan_allocate(b->plan, call->n_results, sizeof(int))) == NULL)
        return -1;
    for (int i = 0; i < call->n_results; i++) {
        PyObject *slot = call->unpack ? PyTuple_GET_ITEM(results, i) : results;
        call->results[i] = -1;
        if (slot != Py_None && plan_write_slot(b, slot, &call->results[i]) < 0)
            return -1;
    }
    return 0;
}

static int build_call(PlanBuilder *b, PyObject *parts, PlanStep *step)
{
    PyObject *args, *kwargs, *results;
    CallStep *call = &step->call;
    if (!PyArg_ParseTuple(parts, "OO!OO:call", &call->callable, &PyTuple_Type, &args, &kwargs, &results))
        return -1;
    if (!PyCallable_Check(call->callable) || (kwargs != Py_None && !PyDict_Check(kwargs))) {
        PyErr_SetString(PyExc_TypeError,
            "a call step takes a callable, a tuple, a dict or None, and where the result goes");
        return -1;
    }
    step->kind = STEP_CALL;
    call->n_positional = (int)PyTuple_GET_SIZE(args);
    call->n_args = call->n_positional + (kwargs == Py_None ? 0 : (int)PyDict_GET_SIZE(kwargs));
    if (PyList_Append(b->plan->keep, call->callable) < 0
        || (call->args = plan_allocate(b->plan, call->n_args, sizeof(CallArg))) == NULL)
        return -1;
    for (int i = 0; i < call->n_positional; i++)
        if (plan_read_arg(b, PyTuple_GET_ITEM(args, i), 0, &call->args[i]) < 0)
            return -1;
    if (call->n_args > call->n_positional) {
        PyObject *name, *value, *names = PySequence_Tuple(kwargs);
        int status = names ? PyList_Append(b->plan->keep, names) : -1;
        Py_XDECREF(names);
        call->names = names;
        Py_ssize_t position = 0;
        for (int i = call->n_positional; status == 0 && PyDict_Next(kwargs, &position, &name, &value); i++)
            status = plan_read_arg(b, value, 0, &call->args[i]);
        if (status < 0)
            return -1;
    }
    return build_results(b, results, call) < 0 ? -1 : need_scratch(b->plan, call->n_args + 1);
}

static int build_free(PlanBuilder *b, PyObject *parts, PlanStep *step)
{
    PyObject *number;
    if (!PyArg_ParseTuple(parts, "O:free", &number) || plan_read_slot(b, number, &step->slot) < 0)
        return -1;
    step->kind = STEP_FREE;
    b->live[step->slot] = 0;
    b->plan->frees_inputs |= step->slot < b->plan->n_inputs;
    return 0;
}

static int build_expect(PlanBuilder *b, PyObject *parts, PlanStep *step)
{
    PyObject *slot, *sizes, *strides;
    ExpectStep *expect = &step->expect;
    if (!PyArg_ParseTuple(parts, "OOOO:expect", &slot, &sizes, &strides, &expect->repair))
        return -1;
    step->kind = STEP_EXPECT;
    if (plan_read_slot(b, slot, &expect->slot) < 0 || plan_read_shape(b->plan, sizes, strides, &expect->shape) < 0)
        return -1;
    if (expect->slot < b->plan->n_inputs) {
        PyErr_SetString(PyExc_ValueError, "inputs are what they are; only results may be expected to be something");
        return -1;
    }
    return PyList_Append(b->plan->keep, expect->repair);
}

static int build_constant(PlanBuilder *b, PyObject *parts, PlanStep *step)
{
    PyObject *slot;
    if (!PyArg_ParseTuple(parts, "OO:constant", &slot, &step->constant.object))
        return -1;
    step->kind = STEP_CONSTANT;
    return plan_write_slot(b, slot, &step->constant.slot) < 0 ? -1
        : PyList_Append(b->plan->keep, step->constant.object);
}

static const struct { const char *name; int (*build)(PlanBuilder *, PyObject *, PlanStep *); } kinds[] = {
    {"empty", build_empty}, {"reinterpret", build_reinterpret}, {"inherit", build_inherit},
    {"place", build_place}, {"cpu_kernel", build_cpu}, {"cuda_kernel", build_cuda}, {"ready", build_ready},
    {"graph", build_graph}, {"call", build_call}, {"expect", build_expect}, {"constant", build_constant},
    {"free", build_free},
};

int plan_build_step(PlanBuilder *b, PyObject *description, PlanStep *step)
{
    PyObject *name = PyTuple_Check(description) && PyTuple_GET_SIZE(description) ? PyTuple_GET_ITEM(description, 0)
        : NULL;
    for (size_t i = 0; name && PyUnicode_Check(name) && i < sizeof(kinds) / sizeof(*kinds); i++) {
        if (PyUnicode_CompareWithASCIIString(name, kinds[i].name) != 0)
            continue;
        PyObject *parts = PyTuple_GetSlice(description, 1, PyTuple_GET_SIZE(description));
        int status = parts ? kinds[i].build(b, parts, step) : -1;
        Py_XDECREF(parts);
        return status;
    }
    PyErr_Format(PyExc_ValueError, "%R is no step of a plan", description);
    return -1;
}
