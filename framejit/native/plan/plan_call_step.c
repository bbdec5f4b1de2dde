/* The step that calls a Python callable: values become Python objects, results become values. */
#include "plan/plan.h"
#include "torch/tensor_spec.h"
#include "torch/torch_warnings.h"

PyObject *plan_value_object(PlanValue *value)
{
    if (value->object == NULL) {
        PyObject *object = fj_shim.wrap(value->handle);
        if (object == NULL)
            return NULL;
        fj_shim.delete_tensor(value->handle);
        value->object = object;
        value->handle = HANDLE(object);
    }
    return value->object;
}

void plan_value_drop(PlanValue *value)
{
    PlanValue old = *value;
    value->handle = NULL;
    value->object = NULL;
    if (old.object)
        Py_DECREF(old.object);
    else if (old.handle)
        fj_shim.delete_tensor(old.handle);
}

static PyObject *make_item(const CallArg *arg, PlanValue *values)              /* new reference */
{
    if (arg->kind == ARG_CONSTANT)
        return Py_NewRef(arg->constant);
    if (arg->kind == ARG_VALUE)
        return Py_XNewRef(plan_value_object(&values[arg->slot]));
    PyObject *made = arg->kind == ARG_TUPLE ? PyTuple_New(arg->n_items) : PyList_New(arg->n_items);
    for (int i = 0; made && i < arg->n_items; i++) {
        PyObject *item = make_item(&arg->items[i], values);
        if (item == NULL)
            Py_CLEAR(made);
        else if (arg->kind == ARG_TUPLE)
            PyTuple_SET_ITEM(made, i, item);
        else
            PyList_SET_ITEM(made, i, item);
    }
    return made;
}

static void store(PlanValue *value, PyObject *object)                          /* steals object */
{
    value->handle = PyObject_TypeCheck(object, fj_torch.tensor_type) ? HANDLE(object) : NULL;
    value->object = object;
}

static int store_items(const CallStep *step, PlanValue *values, PyObject *result)
{
    if (!PyTuple_Check(result) && !PyList_Check(result)) {
        PyErr_Format(PyExc_TypeError, "%R returned %s where a tuple of %d was expected", step->callable,
            Py_TYPE(result)->tp_name, step->n_results);
        return -1;
    }
    if (PySequence_Fast_GET_SIZE(result) != step->n_results) {
        PyErr_Format(PyExc_ValueError, "%R returned %zd values where %d were expected", step->callable,
            PySequence_Fast_GET_SIZE(result), step->n_results);
        return -1;
    }
    for (int i = 0; i < step->n_results; i++)
        if (step->results[i] >= 0)
            store(&values[step->results[i]], Py_NewRef(PySequence_Fast_GET_ITEM(result, i)));
    return 0;
}

int run_call(const CallStep *step, PlanValue *values, void **scratch)
{
    PyObject **stack = (PyObject **)scratch + 1, *result = NULL;  /* before the first argument the callee may write */
    int n = 0;
    for (; n < step->n_args; n++) {
        stack[n] = make_item(&step->args[n], values);
        if (stack[n] == NULL)
            break;
    }
    if (n == step->n_args) {
        WarningScope scope;
        warnings_begin(&scope);
        result = PyObject_Vectorcall(step->callable, stack, (size_t)step->n_positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
            step->names);
        if (warnings_end(&scope) < 0)
            Py_CLEAR(result);
    }
    while (n > 0)
        Py_DECREF(stack[--n]);
    if (result == NULL)
        return -1;
    int status = 0;
    if (step->unpack)
        status = store_items(step, values, result);
    else if (step->n_results) {
        store(&values[step->results[0]], result);
        return 0;
    }
    Py_DECREF(result);
    return status;
}

void run_constant(const ConstantStep *step, PlanValue *value)
{
    store(value, Py_NewRef(step->object));
}

/* A dimension of one element, and a tensor of none, may have any strides. */
static int has_shape(TensorHandle tensor, const Shape *shape)
{
    int64_t ndim, *sizes, *strides;
    if (tensor == NULL || fj_torch.get_dim(tensor, &ndim) || ndim != shape->ndim || fj_torch.get_sizes(tensor, &sizes)
        || fj_torch.get_strides(tensor, &strides))
        return 0;
    int same_strides = 1, empty = 0;
    for (int i = 0; i < shape->ndim; i++) {
        if (sizes[i] != shape->sizes[i])
            return 0;
        empty |= sizes[i] == 0;
        same_strides &= sizes[i] == 1 || strides[i] == shape->strides[i];
    }
    return same_strides || empty;
}

int run_expect(const ExpectStep *step, PlanValue *value)
{
    if (FJ_LIKELY(has_shape(value->handle, &step->shape)))
        return 0;
    PyObject *object = plan_value_object(value), *made = object ? PyObject_CallOneArg(step->repair, object) : NULL;
    if (made == NULL)
        return -1;
    PyObject *old = value->object;
    store(value, made);
    Py_DECREF(old);
    if (has_shape(value->handle, &step->shape))
        return 0;
    PyErr_Format(PyExc_RuntimeError, "%R gave a tensor that is not of the expected shape either", step->repair);
    return -1;
}
