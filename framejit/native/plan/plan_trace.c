/* Running a plan while a CUDA graph is captured: what each launch of a kernel became, and where values lay. */
#include "plan/plan.h"
#include "torch/cuda_driver.h"
#include "torch/tensor_spec.h"

enum { CAPTURING = 1 };

/* The node that the last launch on a stream became. */
static void *last_node(const CudaStep *step)
{
    void *stream, *graph, *node = NULL, *before;
    void *const *last = NULL;
    const void *edges = NULL;
    uint64_t id;
    size_t n = 0;
    int status = 0, error = torch_current_cuda_stream(step->device_index, &stream) < 0;
    if (!error && (error = cuda_enter(step->context, &before)) == CUDA_DONE) {
        error = fj_cuda.with_edges ? fj_cuda.capture_info(stream, &status, &id, &graph, &last, &edges, &n)
            : fj_cuda.capture_info(stream, &status, &id, &graph, &last, &n);
        node = !error && status == CAPTURING && n == 1 ? last[0] : NULL;
        cuda_leave(step->context, before);
    }
    if (node == NULL)
        PyErr_SetString(PyExc_RuntimeError, "the CUDA driver does not say which node a launch became");
    return node;
}

/* (number of the step, node, address of each argument that is one; 0 for others) */
static PyObject *trace_launch(int number, const CudaStep *step, const PlanValue *values)
{
    void *node = last_node(step), *data;
    PyObject *addresses = node ? PyTuple_New(step->n_args) : NULL;
    for (int i = 0; addresses && i < step->n_args; i++) {
        data = NULL;
        PyObject *address = step->args[i].slot >= 0 && plan_value_data(&values[step->args[i].slot], &data) < 0 ? NULL
            : PyLong_FromVoidPtr(data);
        if (address == NULL)
            Py_CLEAR(addresses);
        else
            PyTuple_SET_ITEM(addresses, i, address);
    }
    return addresses ? Py_BuildValue("(iKN)", number, (unsigned long long)(uintptr_t)node, addresses) : NULL;
}

static int trace(PyObject *list, int number, const PlanStep *step, const PlanValue *values)
{
    if (step->kind != STEP_CUDA || !(step->cuda.grid[0] && step->cuda.grid[1] && step->cuda.grid[2]))
        return 0;
    PyObject *entry = trace_launch(number, &step->cuda, values);
    int status = entry ? PyList_Append(list, entry) : -1;
    Py_XDECREF(entry);
    return status;
}

/* Takes what is in a slot, if that is wanted. */
static int take(PyObject *wanted, PyObject *tensors, int slot, PlanValue *value)
{
    PyObject *number = PyLong_FromLong(slot);
    int status = number ? PySequence_Contains(wanted, number) : -1;
    if (status > 0) {
        PyObject *object = plan_value_object(value);
        status = object ? PyDict_SetItem(tensors, number, object) : -1;
    }
    Py_XDECREF(number);
    return status < 0 ? -1 : 0;
}

/* A tensor on another device would be of the time of the capture, at every launch. */
static int check_results(const CallStep *step, int32_t device_type, const PlanValue *values)
{
    for (int i = 0; i < step->n_results; i++) {
        int32_t type;
        int slot = step->results[i];
        if (slot < 0 || (values[slot].handle && fj_torch.get_device_type
            && fj_torch.get_device_type(values[slot].handle, &type) == 0 && type == device_type))
            continue;
        PyErr_Format(PyExc_RuntimeError, "%R gives something that is not on the device", step->callable);
        return -1;
    }
    return 0;
}

static PyObject *collect(const Plan *plan, PyObject *const *args, PyObject *wanted, int32_t device_type,
    PlanValue *values, void **scratch)
{
    PyObject *list = PyList_New(0), *tensors = PyDict_New();
    int status = list && tensors ? 0 : -1;
    for (int i = 0; i < plan->n_inputs; i++)
        values[i] = (PlanValue){HANDLE(args[i]), Py_NewRef(args[i])};
    memset(values + plan->n_inputs, 0, (plan->n_values - plan->n_inputs) * sizeof(PlanValue));
    for (int i = 0; i < plan->n_steps && status == 0; i++) {
        const PlanStep *step = &plan->steps[i];
        if (step->kind == STEP_FREE)
            status = take(wanted, tensors, step->slot, &values[step->slot]);
        if (status == 0)
            status = plan_run_step(step, values, scratch);
        if (status == 0)
            status = step->kind == STEP_CALL ? check_results(&step->call, device_type, values)
                : trace(list, i, step, values);
    }
    for (int i = plan->n_inputs; i < plan->n_values && status == 0; i++)
        if (values[i].handle || values[i].object)
            status = take(wanted, tensors, i, &values[i]);
    for (int i = 0; i < plan->n_values; i++)
        plan_value_drop(&values[i]);
    PyObject *result = status == 0 ? PyTuple_Pack(2, list, tensors) : NULL;
    Py_XDECREF(list);
    Py_XDECREF(tensors);
    return result;
}

PyObject *plan_traced(PyObject *self, PyObject *arguments)
{
    const Plan *plan = (Plan *)self;
    PyObject *inputs, *wanted, *device, *result = NULL;
    int32_t device_type, device_index;
    if (!PyArg_ParseTuple(arguments, "O!O!O:traced", &PyTuple_Type, &inputs, &PyFrozenSet_Type, &wanted, &device)
        || cuda_graphs_load() < 0 || torch_device_numbers(device, &device_type, &device_index) < 0)
        return NULL;
    PyObject *const *args = PySequence_Fast_ITEMS(inputs);
    int accepted = plan_check_call(plan, args, PyTuple_GET_SIZE(inputs), 0);
    if (accepted != 1)
        return accepted < 0 ? NULL : Py_NewRef(Py_None);
    size_t words = (size_t)plan->n_values * (sizeof(PlanValue) / sizeof(void *)) + plan->n_scratch + 1;
    void **block = PyMem_Malloc(words * sizeof(void *));
    if (block == NULL)
        return PyErr_NoMemory();
    PlanValue *values = (PlanValue *)block;
    result = collect(plan, args, wanted, device_type, values, (void **)(values + plan->n_values));
    PyMem_Free(block);
    return result;
}
