/* Tensor guards: what they expect, taken from an example, and the two slower ways of comparing a tensor with it. */
#include "torch/tensor_spec.h"

PyObject *fj_name_requires_grad, *fj_name_raw_repr;
static PyObject *name_dtype, *name_device, *name_shape, *name_stride, *name_layout, *name_torch_dispatch;

/* ---- matching ---- */
uint64_t keyset_by_attribute(PyObject *tensor, int *error)
{
    PyObject *keys = PyObject_CallOneArg(fj_torch.dispatch_keys, tensor);
    PyObject *raw = keys ? PyObject_CallMethodNoArgs(keys, fj_name_raw_repr) : NULL;
    uint64_t bits = raw ? PyLong_AsUnsignedLongLong(raw) : 0;
    Py_XDECREF(keys);
    Py_XDECREF(raw);
    *error = PyErr_Occurred() != NULL;
    return bits;
}

static int match_shim(const TensorSpec *spec, PyObject *value)
{
    void *h = HANDLE(value);
    int32_t type, index, dtype, layout;
    int64_t n, *sizes, *strides;
    /* before the strides: asking for those of a sparse tensor logs */
    if (fj_torch.get_dtype(h, &dtype) || (uint16_t)dtype != spec->dtype || fj_torch.get_device_type(h, &type)
        || fj_torch.get_device_index(h, &index) || (uint16_t)((uint8_t)type | (uint8_t)index << 8) != spec->device
        || fj_torch.get_layout(h, &layout) || layout != spec->layout
        || fj_torch.get_dim(h, &n) || n != spec->ndim || fj_torch.get_sizes(h, &sizes)
        || fj_torch.get_strides(h, &strides) || !dims_match(spec, sizes, strides)
        || (fj_torch.requires_grad(IMPL(value)) & 1) != spec->requires_grad)
        return 0;
    int error;  /* the shim knows nothing of the key set (conjugate, inference, functorch tensors) */
    uint64_t keyset = keyset_by_attribute(value, &error);
    if (error)
        PyErr_Clear();
    return !error && keyset == spec->keyset;
}

static int ints_match(PyObject *ints, int64_t n, const int64_t *expected, uint64_t may_differ)
{
    if (ints == NULL || !PyTuple_Check(ints) || PyTuple_GET_SIZE(ints) != n)
        return 0;
    for (int64_t d = 0; d < n; d++) {
        PyObject *item = PyTuple_GET_ITEM(ints, d);
        if (!PyLong_CheckExact(item))
            return 0;                     /* a symbol; may differ or not, nothing is known of it */
        if (!(may_differ >> d & 1) && PyLong_AsLongLong(item) != expected[d])
            return 0;
    }
    return 1;
}

static int attribute_is(PyObject *obj, PyObject *name, PyObject *expected)
{
    PyObject *value = PyObject_GetAttr(obj, name);
    int same = value && (value == expected || PyObject_RichCompareBool(value, expected, Py_EQ) == 1);
    Py_XDECREF(value);
    return same;
}

static int match_attributes(const TensorSpec *spec, PyObject *value)
{
    int ok = attribute_is(value, name_dtype, spec->dtype_object)
        && attribute_is(value, name_layout, spec->layout_object)
        && attribute_is(value, name_device, spec->device_object)
        && attribute_is(value, fj_name_requires_grad, spec->requires_grad ? Py_True : Py_False);
    if (ok) {
        PyObject *shape = PyObject_GetAttr(value, name_shape);
        ok = ints_match(shape, spec->ndim, spec->dims, spec->free_sizes);
        Py_XDECREF(shape);
    }
    if (ok && spec->has_strides) {
        PyObject *strides = PyObject_CallMethodNoArgs(value, name_stride);
        ok = ints_match(strides, spec->ndim, spec->dims + spec->ndim, spec->free_strides);
        Py_XDECREF(strides);
    }
    if (ok) {
        int error;
        ok = keyset_by_attribute(value, &error) == spec->keyset && !error;
    }
    if (!ok)
        PyErr_Clear();
    return ok;
}

int tensor_spec_match_slowly(const TensorSpec *spec, PyObject *value)
{
    return fj_tensor_access == ACCESS_SHIM && !spec->attributes_only ? match_shim(spec, value)
        : match_attributes(spec, value);
}

int tensor_spec_runs_python(const TensorSpec *spec)
{
    return spec->attributes_only || fj_tensor_access != ACCESS_DIRECT || fj_torch.requires_grad == NULL;
}

/* ---- construction ---- */
static int read_ints(PyObject *ints, int64_t n, int64_t *out)
{
    if (!PyTuple_Check(ints) || PyTuple_GET_SIZE(ints) != n) {
        PyErr_SetString(PyExc_TypeError, "sizes and strides of a tensor are tuples of one length");
        return -1;
    }
    for (int64_t d = 0; d < n; d++) {
        PyObject *item = PyTuple_GET_ITEM(ints, d);
        if (!PyLong_CheckExact(item)) {
            PyErr_SetString(PyExc_TypeError, "a tensor with symbolic sizes cannot be guarded");
            return -1;
        }
        out[d] = PyLong_AsLongLong(item);
        if (out[d] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

int tensor_dims_by_attribute(PyObject *tensor, int64_t *dims, int64_t *ndim, int *has_strides)
{
    PyObject *shape = PyObject_GetAttr(tensor, name_shape);
    *ndim = shape && PyTuple_Check(shape) ? PyTuple_GET_SIZE(shape) : 0;
    if (*ndim > MAX_DIMS)
        PyErr_SetString(PyExc_ValueError, "a tensor of more than 64 dimensions cannot be guarded");
    int bad = shape == NULL || *ndim > MAX_DIMS || read_ints(shape, *ndim, dims) < 0;
    Py_XDECREF(shape);
    if (bad)
        return -1;
    PyObject *strides = PyObject_CallMethodNoArgs(tensor, name_stride);
    *has_strides = strides != NULL;
    if (strides == NULL) {                /* sparse and other layouts without strides */
        PyErr_Clear();
        return 0;
    }
    bad = read_ints(strides, *ndim, dims + *ndim);
    Py_DECREF(strides);
    return bad;
}

static TensorSpec *spec_of_shape(PyObject *shape)
{
    Py_ssize_t n = PyTuple_Check(shape) ? PyTuple_GET_SIZE(shape) : 0;
    if (n > MAX_DIMS) {
        PyErr_SetString(PyExc_ValueError, "a tensor of more than 64 dimensions cannot be guarded");
        return NULL;
    }
    TensorSpec *spec = PyMem_Calloc(1, sizeof(TensorSpec) + 2 * n * sizeof(int64_t));
    if (spec == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    spec->ndim = n;
    if (read_ints(shape, n, spec->dims) < 0) {
        PyMem_Free(spec);
        return NULL;
    }
    return spec;
}

int read_bool_attribute(PyObject *obj, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(obj, name);
    int truth = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return truth;
}

static int fill_strides(TensorSpec *spec, PyObject *tensor)
{
    PyObject *strides = PyObject_CallMethodNoArgs(tensor, name_stride);
    if (strides == NULL) {                /* sparse and other layouts without strides */
        PyErr_Clear();
        spec->attributes_only = 1;
        return 0;
    }
    spec->has_strides = 1;
    int bad = read_ints(strides, spec->ndim, spec->dims + spec->ndim);
    Py_DECREF(strides);
    return bad;
}

static int fill_from_attributes(TensorSpec *spec, PyObject *tensor)
{
    int error, grad;
    if (!(spec->dtype_object = PyObject_GetAttr(tensor, name_dtype))
        || !(spec->device_object = PyObject_GetAttr(tensor, name_device))
            || !(spec->layout_object = PyObject_GetAttr(tensor, name_layout))
            || (grad = read_bool_attribute(tensor, fj_name_requires_grad)) < 0)
        return -1;
    spec->requires_grad = (int8_t)grad;
    spec->keyset = keyset_by_attribute(tensor, &error);
    return error ? -1 : fill_strides(spec, tensor);
}

/* The integers under dtype and device have no Python name: they are read from the tensor itself, and whatever way of
 * reading disagrees with the attributes (a subclass that computes its sizes, say) is not used for this tensor. */
static int fill_native(TensorSpec *spec, PyObject *tensor)
{
    if (fj_torch.impl < 0 || !fj_torch.get_dtype || !fj_torch.get_device_type || !fj_torch.get_device_index
        || !fj_torch.get_layout) {
        spec->attributes_only = 1;
        return 0;
    }
    int32_t dtype, type, index;
    void *h = HANDLE(tensor);
    if (fj_torch.get_dtype(h, &dtype) || fj_torch.get_device_type(h, &type) || fj_torch.get_device_index(h, &index)
        || fj_torch.get_layout(h, &spec->layout)) {
        spec->attributes_only = 1;
        return 0;
    }
    spec->dtype = (uint16_t)dtype;
    spec->device = (uint16_t)((uint8_t)type | (uint8_t)index << 8);
    if (!spec->attributes_only && fj_tensor_access == ACCESS_DIRECT && !match_direct(spec, tensor))
        spec->attributes_only = 1;
    else if (!spec->attributes_only && fj_tensor_access == ACCESS_SHIM && !match_shim(spec, tensor))
        spec->attributes_only = 1;
    return 0;
}

static int dispatches_in_python(PyTypeObject *type)
{
    return type != fj_torch.tensor_type
        && _PyType_Lookup(type, name_torch_dispatch) != _PyType_Lookup(fj_torch.tensor_type, name_torch_dispatch);
}

TensorSpec *tensor_spec_new(PyObject *payload)
{
    PyObject *tensor = payload;
    unsigned long long free_sizes = 0, free_strides = 0;
    if (PyTuple_Check(payload)) {
        if (!PyArg_ParseTuple(payload, "OK|K;C_TENSOR takes a tensor or (tensor, free sizes[, free strides])", &tensor,
            &free_sizes, &free_strides))
            return NULL;
        if (PyTuple_GET_SIZE(payload) == 2)
            free_strides = free_sizes;
    }
    if (fj_torch.tensor_type == NULL) {
        PyErr_SetString(PyExc_RuntimeError,
            "tensor layout is not known yet: import framejit.guards.tensor_layout first");
        return NULL;
    }
    if (!PyObject_TypeCheck(tensor, fj_torch.tensor_type)) {
        PyErr_Format(PyExc_TypeError, "C_TENSOR takes a tensor, not %.100s", Py_TYPE(tensor)->tp_name);
        return NULL;
    }
    PyObject *shape = PyObject_GetAttr(tensor, name_shape);
    if (shape == NULL)
        return NULL;
    TensorSpec *spec = spec_of_shape(shape);
    Py_DECREF(shape);
    if (spec == NULL)
        return NULL;
    spec->type = (PyTypeObject *)Py_NewRef(Py_TYPE(tensor));
    /* such a tensor may have symbols for sizes, which only Python can tell from numbers */
    spec->attributes_only = (free_sizes | free_strides) && dispatches_in_python(Py_TYPE(tensor));
    if (fill_from_attributes(spec, tensor) < 0 || fill_native(spec, tensor) < 0) {
        tensor_spec_free(spec);
        return NULL;
    }
    spec->free_sizes = free_sizes;        /* only now: the example itself was to be read right in all dimensions */
    spec->free_strides = free_strides;
    return spec;
}

void tensor_spec_free(TensorSpec *spec)
{
    Py_XDECREF(spec->type);
    Py_XDECREF(spec->dtype_object);
    Py_XDECREF(spec->device_object);
    Py_XDECREF(spec->layout_object);
    PyMem_Free(spec);
}

int tensor_spec_traverse(TensorSpec *spec, visitproc visit, void *arg)
{
    Py_VISIT(spec->type);
    return 0;
}


int tensor_spec_init(void)
{
    return (name_dtype = PyUnicode_InternFromString("dtype")) && (name_device = PyUnicode_InternFromString("device"))
        && (name_shape = PyUnicode_InternFromString("shape")) && (name_stride = PyUnicode_InternFromString("stride"))
        && (name_layout = PyUnicode_InternFromString("layout"))
        && (fj_name_requires_grad = PyUnicode_InternFromString("requires_grad"))
        && (fj_name_raw_repr = PyUnicode_InternFromString("raw_repr"))
        && (name_torch_dispatch = PyUnicode_InternFromString("__torch_dispatch__")) ? 0 : -1;
}
