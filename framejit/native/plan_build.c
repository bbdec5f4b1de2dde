/* Building a plan from its description: checks it, and lays out all that the calls have in common. */
#include "plan.h"
#include "cuda_driver.h"

struct PlanBlock { PlanBlock *next; int64_t memory[]; };

/* What is known while a plan is being read. A slot is written once and read only between that and its "free": then a running plan needs no checks. */
typedef struct {
    Plan *plan;
    char *live;                           /* one flag a slot */
    char *written;
} Builder;

void plan_free_blocks(Plan *plan)
{
    while (plan->blocks) {
        PlanBlock *block = plan->blocks;
        plan->blocks = block->next;
        PyMem_Free(block);
    }
}

/* Zeroed memory that lives as long as the plan. */
static void *allocate(Plan *plan, Py_ssize_t count, size_t size)
{
    PlanBlock *block = PyMem_Calloc(1, sizeof(PlanBlock) + (size_t)count * size);
    if (block == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    block->next = plan->blocks;
    plan->blocks = block;
    return block->memory;
}

static int need_scratch(Plan *plan, Py_ssize_t words)
{
    if (words > plan->n_scratch)
        plan->n_scratch = (int)words;
    return 0;
}

/* ---- slots ---- */
static int check_slot(Builder *b, long slot)
{
    if (slot >= 0 && slot < b->plan->n_values)
        return 0;
    PyErr_Format(PyExc_ValueError, "slot %ld of %d", slot, b->plan->n_values);
    return -1;
}

static int read_slot(Builder *b, PyObject *number, int *slot)
{
    long n = PyLong_AsLong(number);
    if ((n == -1 && PyErr_Occurred()) || check_slot(b, n) < 0)
        return -1;
    if (!b->live[n]) {
        PyErr_Format(PyExc_ValueError, "slot %ld is read while it holds nothing", n);
        return -1;
    }
    *slot = (int)n;
    return 0;
}

static int write_slot(Builder *b, PyObject *number, int *slot)
{
    long n = PyLong_AsLong(number);
    if ((n == -1 && PyErr_Occurred()) || check_slot(b, n) < 0)
        return -1;
    if (b->written[n]) {
        PyErr_Format(PyExc_ValueError, "slot %ld is written twice", n);
        return -1;
    }
    b->live[n] = b->written[n] = 1;
    *slot = (int)n;
    return 0;
}

/* ---- parts of steps ---- */
static int64_t *read_integers(Plan *plan, PyObject *numbers, Py_ssize_t *count)
{
    PyObject *fast = PySequence_Fast(numbers, "integers are given as a tuple or list");
    int64_t *read = fast ? allocate(plan, PySequence_Fast_GET_SIZE(fast), sizeof(int64_t)) : NULL;
    for (Py_ssize_t i = 0; read && i < PySequence_Fast_GET_SIZE(fast); i++) {
        read[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast, i));
        if (read[i] == -1 && PyErr_Occurred())
            read = NULL;
    }
    *count = fast ? PySequence_Fast_GET_SIZE(fast) : 0;
    Py_XDECREF(fast);
    return read;
}

static int *read_slots(Builder *b, PyObject *numbers, int *count)
{
    PyObject *fast = PySequence_Fast(numbers, "slots are given as a tuple or list");
    int *read = fast ? allocate(b->plan, PySequence_Fast_GET_SIZE(fast), sizeof(int)) : NULL;
    for (Py_ssize_t i = 0; read && i < PySequence_Fast_GET_SIZE(fast); i++)
        if (read_slot(b, PySequence_Fast_GET_ITEM(fast, i), &read[i]) < 0)
            read = NULL;
    *count = fast ? (int)PySequence_Fast_GET_SIZE(fast) : 0;
    Py_XDECREF(fast);
    return read;
}

static int read_shape(Plan *plan, PyObject *sizes, PyObject *strides, Shape *shape)
{
    Py_ssize_t n_sizes, n_strides;
    if ((shape->sizes = read_integers(plan, sizes, &n_sizes)) == NULL || (shape->strides = read_integers(plan, strides, &n_strides)) == NULL)
        return -1;
    int bad = n_sizes != n_strides;
    for (Py_ssize_t i = 0; i < n_sizes && !bad; i++)
        bad = shape->sizes[i] < 0 || shape->strides[i] < 0;
    if (bad) {
        PyErr_Format(PyExc_ValueError, "%R and %R are not the sizes and strides of a tensor", sizes, strides);
        return -1;
    }
    shape->ndim = (int)n_sizes;
    return 0;
}

static int read_arg(Builder *b, PyObject *value, int depth, CallArg *arg)
{
    if (Py_IS_TYPE(value, &Value_Type)) {
        PyObject *number = PyLong_FromLong(value_index(value));
        int status = number ? read_slot(b, number, &arg->slot) : -1;
        Py_XDECREF(number);
        arg->kind = ARG_VALUE;
        return status;
    }
    if (depth == 0 && (PyTuple_CheckExact(value) || PyList_CheckExact(value))) {
        arg->kind = PyTuple_CheckExact(value) ? ARG_TUPLE : ARG_LIST;
        arg->n_items = (int)PySequence_Fast_GET_SIZE(value);
        int plain = arg->kind == ARG_TUPLE;       /* a list is made anew for each call: the callee may change it */
        if ((arg->items = allocate(b->plan, arg->n_items, sizeof(CallArg))) == NULL)
            return -1;
        for (int i = 0; i < arg->n_items; i++) {
            if (read_arg(b, PySequence_Fast_GET_ITEM(value, i), 1, &arg->items[i]) < 0)
                return -1;
            plain &= arg->items[i].kind == ARG_CONSTANT;
        }
        if (!plain)
            return 0;
    }
    arg->kind = ARG_CONSTANT;
    arg->constant = value;
    return PyList_Append(b->plan->keep, value);
}

/* ---- steps, without their first item, the kind ---- */
static int build_empty(Builder *b, PyObject *parts, PlanStep *step)
{
    PyObject *slot, *sizes, *strides, *dtype, *device;
    EmptyStep *empty = &step->empty;
    if (!PyArg_ParseTuple(parts, "OOOOO:empty", &slot, &sizes, &strides, &dtype, &device))
        return -1;
    step->kind = STEP_EMPTY;
    if (write_slot(b, slot, &empty->slot) < 0 || read_shape(b->plan, sizes, strides, &empty->shape) < 0
        || torch_dtype_number(dtype, &empty->dtype) < 0 || torch_device_numbers(device, &empty->device_type, &empty->device_index) < 0)
        return -1;
    empty->arguments = PyTuple_GetSlice(parts, 1, PyTuple_GET_SIZE(parts));
    int status = empty->arguments ? PyList_Append(b->plan->keep, empty->arguments) : -1;
    Py_XDECREF(empty->arguments);
    return status;
}

static int build_reinterpret(Builder *b, PyObject *parts, PlanStep *step)
{
    PyObject *slot, *base, *sizes, *strides, *dtype;
    long long offset;
    ReinterpretStep *view = &step->reinterpret;
    if (!PyArg_ParseTuple(parts, "OOOOLO:reinterpret", &slot, &base, &sizes, &strides, &offset, &dtype))
        return -1;
    step->kind = STEP_REINTERPRET;
    view->offset = offset;
    return read_slot(b, base, &view->base) < 0 || write_slot(b, slot, &view->slot) < 0 || read_shape(b->plan, sizes, strides, &view->shape) < 0
        || torch_dtype_number(dtype, &view->dtype) < 0 ? -1 : 0;
}

static int build_cpu(Builder *b, PyObject *parts, PlanStep *step)
{
    unsigned long long address;
    PyObject *tensors, *ints;
    long long total, grain;
    Py_ssize_t n_ints;
    CpuStep *cpu = &step->cpu;
    if (!PyArg_ParseTuple(parts, "KOOLL:cpu_kernel", &address, &tensors, &ints, &total, &grain))
        return -1;
    if (address == 0 || total < 0 || grain < 1) {
        PyErr_Format(PyExc_ValueError, "no kernel at address %llu can run over %lld with grain %lld", address, total, grain);
        return -1;
    }
    step->kind = STEP_CPU;
    cpu->kernel = (CpuKernel)(uintptr_t)address;
    cpu->total = total;
    cpu->grain = grain < INT64_MAX / 2 ? grain : INT64_MAX / 2;
    if ((cpu->tensors = read_slots(b, tensors, &cpu->n_tensors)) == NULL || (cpu->ints = read_integers(b->plan, ints, &n_ints)) == NULL)
        return -1;
    return need_scratch(b->plan, cpu->n_tensors);
}

static int read_cuda_arg(Builder *b, PyObject *description, CudaArg *arg)
{
    PyObject *number = Py_None;
    const char *kind;
    if (!PyTuple_Check(description)) {
        PyErr_Format(PyExc_TypeError, "%R is no argument of a kernel", description);
        return -1;
    }
    if (!PyArg_ParseTuple(description, "s|O:argument of a cuda_kernel", &kind, &number))
        return -1;
    arg->slot = -1;
    if (strcmp(kind, "p") == 0)
        return read_slot(b, number, &arg->slot);
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

static int build_cuda(Builder *b, PyObject *parts, PlanStep *step)
{
    unsigned long long function;
    PyObject *args;
    int x, y, z, threads, shared_bytes;
    CudaStep *cuda = &step->cuda;
    if (!PyArg_ParseTuple(parts, "K(iii)iiO!i:cuda_kernel", &function, &x, &y, &z, &threads, &shared_bytes, &PyTuple_Type, &args, &cuda->device_index))
        return -1;
    if (x < 0 || y < 0 || z < 0 || threads < 1 || shared_bytes < 0) {
        PyErr_Format(PyExc_ValueError, "no kernel can run on a grid of (%d, %d, %d) with %d threads and %d bytes", x, y, z, threads, shared_bytes);
        return -1;
    }
    step->kind = STEP_CUDA;
    cuda->function = (void *)(uintptr_t)function;
    memcpy(cuda->grid, (unsigned[]){x, y, z}, sizeof(cuda->grid));
    cuda->threads = threads;
    cuda->shared_bytes = shared_bytes;
    cuda->n_args = (int)PyTuple_GET_SIZE(args);
    if (cuda_context(cuda->device_index, &cuda->context) < 0 || (cuda->args = allocate(b->plan, cuda->n_args, sizeof(CudaArg))) == NULL)
        return -1;
    for (int i = 0; i < cuda->n_args; i++)
        if (read_cuda_arg(b, PyTuple_GET_ITEM(args, i), &cuda->args[i]) < 0)
            return -1;
    return need_scratch(b->plan, 2 * (Py_ssize_t)cuda->n_args);
}

static int build_results(Builder *b, PyObject *results, CallStep *call)
{
    call->unpack = PyTuple_Check(results);
    call->n_results = call->unpack ? (int)PyTuple_GET_SIZE(results) : results != Py_None;
    if ((call->results = allocate(b->plan, call->n_results, sizeof(int))) == NULL)
        return -1;
    for (int i = 0; i < call->n_results; i++) {
        PyObject *slot = call->unpack ? PyTuple_GET_ITEM(results, i) : results;
        call->results[i] = -1;
        if (slot != Py_None && write_slot(b, slot, &call->results[i]) < 0)
            return -1;
    }
    return 0;
}

static int build_call(Builder *b, PyObject *parts, PlanStep *step)
{
    PyObject *args, *kwargs, *results;
    CallStep *call = &step->call;
    if (!PyArg_ParseTuple(parts, "OO!OO:call", &call->callable, &PyTuple_Type, &args, &kwargs, &results))
        return -1;
    if (!PyCallable_Check(call->callable) || (kwargs != Py_None && !PyDict_Check(kwargs))) {
        PyErr_SetString(PyExc_TypeError, "a call step takes a callable, a tuple, a dict or None, and where the result goes");
        return -1;
    }
    step->kind = STEP_CALL;
    call->n_positional = (int)PyTuple_GET_SIZE(args);
    call->n_args = call->n_positional + (kwargs == Py_None ? 0 : (int)PyDict_GET_SIZE(kwargs));
    if (PyList_Append(b->plan->keep, call->callable) < 0 || (call->args = allocate(b->plan, call->n_args, sizeof(CallArg))) == NULL)
        return -1;
    for (int i = 0; i < call->n_positional; i++)
        if (read_arg(b, PyTuple_GET_ITEM(args, i), 0, &call->args[i]) < 0)
            return -1;
    if (call->n_args > call->n_positional) {
        PyObject *name, *value, *names = PySequence_Tuple(kwargs);
        int status = names ? PyList_Append(b->plan->keep, names) : -1;
        Py_XDECREF(names);
        call->names = names;
        Py_ssize_t position = 0;
        for (int i = call->n_positional; status == 0 && PyDict_Next(kwargs, &position, &name, &value); i++)
            status = read_arg(b, value, 0, &call->args[i]);
        if (status < 0)
            return -1;
    }
    return build_results(b, results, call) < 0 ? -1 : need_scratch(b->plan, call->n_args + 1);
}

static int build_free(Builder *b, PyObject *parts, PlanStep *step)
{
    PyObject *number;
    if (!PyArg_ParseTuple(parts, "O:free", &number) || read_slot(b, number, &step->slot) < 0)
        return -1;
    step->kind = STEP_FREE;
    b->live[step->slot] = 0;
    return 0;
}

static int build_expect(Builder *b, PyObject *parts, PlanStep *step)
{
    PyObject *slot, *sizes, *strides;
    ExpectStep *expect = &step->expect;
    if (!PyArg_ParseTuple(parts, "OOOO:expect", &slot, &sizes, &strides, &expect->repair))
        return -1;
    step->kind = STEP_EXPECT;
    if (read_slot(b, slot, &expect->slot) < 0 || read_shape(b->plan, sizes, strides, &expect->shape) < 0)
        return -1;
    if (expect->slot < b->plan->n_inputs) {
        PyErr_SetString(PyExc_ValueError, "inputs are what they are; only results may be expected to be something");
        return -1;
    }
    return PyList_Append(b->plan->keep, expect->repair);
}

static int build_constant(Builder *b, PyObject *parts, PlanStep *step)
{
    PyObject *slot;
    if (!PyArg_ParseTuple(parts, "OO:constant", &slot, &step->constant.object))
        return -1;
    step->kind = STEP_CONSTANT;
    return write_slot(b, slot, &step->constant.slot) < 0 ? -1 : PyList_Append(b->plan->keep, step->constant.object);
}

static const struct { const char *name; int (*build)(Builder *, PyObject *, PlanStep *); } kinds[] = {
    {"empty", build_empty}, {"reinterpret", build_reinterpret}, {"cpu_kernel", build_cpu}, {"cuda_kernel", build_cuda}, {"call", build_call},
    {"expect", build_expect}, {"constant", build_constant}, {"free", build_free},
};

static int does_something(const Plan *plan, const PlanStep *step)
{
    switch (step->kind) {
    case STEP_FREE:                       /* inputs are the caller's: to free one only says that it is read no more */
        return step->slot >= plan->n_inputs;
    case STEP_CPU:
        return step->cpu.total > 0;
    case STEP_CUDA:                       /* the driver takes an empty grid for an error */
        return step->cuda.grid[0] && step->cuda.grid[1] && step->cuda.grid[2];
    default:
        return 1;
    }
}

static int build_step(Builder *b, PyObject *description)
{
    Plan *plan = b->plan;
    PlanStep *step = &plan->steps[plan->n_steps];
    PyObject *name = PyTuple_Check(description) && PyTuple_GET_SIZE(description) ? PyTuple_GET_ITEM(description, 0) : NULL;
    for (size_t i = 0; name && PyUnicode_Check(name) && i < sizeof(kinds) / sizeof(*kinds); i++) {
        if (PyUnicode_CompareWithASCIIString(name, kinds[i].name) != 0)
            continue;
        PyObject *parts = PyTuple_GetSlice(description, 1, PyTuple_GET_SIZE(description));
        int status = parts ? kinds[i].build(b, parts, step) : -1;
        Py_XDECREF(parts);
        plan->n_steps += status == 0 && does_something(plan, step);
        return status;
    }
    PyErr_Format(PyExc_ValueError, "%R is no step of a plan", description);
    return -1;
}

static int build_outputs(Builder *b, PyObject *outputs)
{
    Plan *plan = b->plan;
    plan->n_outputs = (int)PySequence_Fast_GET_SIZE(outputs);
    if ((plan->outputs = allocate(plan, plan->n_outputs, sizeof(CallArg))) == NULL)
        return -1;
    for (int i = 0; i < plan->n_outputs; i++)
        if (read_arg(b, PySequence_Fast_GET_ITEM(outputs, i), 1, &plan->outputs[i]) < 0)
            return -1;
    return 0;
}

/* 0 also where no input is written */
static int build_alone(Builder *b, PyObject *alone, PyObject *spans)
{
    Py_ssize_t n_spans;
    if (alone == NULL || spans == NULL)
        return 0;
    if ((b->plan->alone = read_slots(b, alone, &b->plan->n_alone)) == NULL || (b->plan->spans = read_integers(b->plan, spans, &n_spans)) == NULL)
        return -1;
    if (n_spans == b->plan->n_inputs)
        return 0;
    PyErr_Format(PyExc_ValueError, "%zd spans for %d inputs", n_spans, b->plan->n_inputs);
    return -1;
}

int plan_build(Plan *plan, PyObject *steps, PyObject *outputs, PyObject *aligned, PyObject *alone, PyObject *spans)
{
    Builder b = {plan, PyMem_Calloc(2, plan->n_values + 1), NULL};
    PyObject *list = PySequence_Fast(steps, "steps are given as a list"), *values = PySequence_Fast(outputs, "outputs are given as a list");
    int status = b.live && list && values ? 0 : -1;
    if (b.live == NULL)
        PyErr_NoMemory();
    if (status == 0) {
        b.written = b.live + plan->n_values + 1;
        memset(b.live, 1, plan->n_inputs);
        memset(b.written, 1, plan->n_inputs);
        plan->steps = allocate(plan, PySequence_Fast_GET_SIZE(list), sizeof(PlanStep));
        /* read first, when nothing but the inputs can be */
        if (plan->steps == NULL || (aligned && (plan->aligned = read_slots(&b, aligned, &plan->n_aligned)) == NULL) || build_alone(&b, alone, spans) < 0)
            status = -1;
    }
    for (Py_ssize_t i = 0; status == 0 && i < PySequence_Fast_GET_SIZE(list); i++)
        status = build_step(&b, PySequence_Fast_GET_ITEM(list, i));
    if (status == 0)
        status = build_outputs(&b, values);
    PyMem_Free(b.live);
    Py_XDECREF(list);
    Py_XDECREF(values);
    return status;
}
