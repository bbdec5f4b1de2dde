/* Reading a tensor's metadata without torch's headers, in one of three ways:
 *   direct      loads at offsets that setup() measured on known tensors,
 *   shim        the stable C functions that libtorch exports (aoti_torch_get_*),
 *   attributes  PyObject_GetAttr.
 * guards/tensor_layout.py calls setup() at import, compares the ways with each other and chooses the fastest one that is right. */
#define _GNU_SOURCE
#include "native.h"
#include <dlfcn.h>

TensorAccess fj_tensor_access = ACCESS_ATTRIBUTES;

enum { MAX_PROBES = 64, MAX_DIMS = 64, SCAN_BYTES = 400, SURELY_INLINE = 3 };

struct TensorSpec {
    PyTypeObject *type;
    uint64_t keyset;
    int64_t ndim;
    uint64_t free_sizes, free_strides;    /* bit d: dimension d may differ */
    uint16_t dtype, device;               /* device: the bytes type and index, as they lie in the tensor */
    int32_t layout;
    int8_t requires_grad;
    int8_t attributes_only;               /* layouts that have no strides, or whose sizes are computed in Python */
    PyObject *dtype_object, *device_object, *layout_object;
    int64_t *sizes, *strides;
};

/* What is known about torch in this process. Offsets of TensorImpl fields, -1 while unknown. */
static struct {
    PyTypeObject *tensor_type;
    PyObject *dispatch_keys;              /* torch._C._dispatch_keys */
    Py_ssize_t impl, keyset, sizes, strides, ndim, dtype, device, autograd_meta;
    int inline_dims;                      /* up to so many dimensions, sizes and strides lie in the tensor itself */
    int32_t (*get_sizes)(void *, int64_t **), (*get_strides)(void *, int64_t **), (*get_dtype)(void *, int32_t *);
    int32_t (*get_device_type)(void *, int32_t *), (*get_device_index)(void *, int32_t *), (*get_layout)(void *, int32_t *);
    int32_t (*get_dim)(void *, int64_t *);
    uint8_t (*requires_grad)(void *);     /* c10::TensorImpl::requires_grad() const */
} torch = {.impl = -1, .keyset = -1, .sizes = -1, .strides = -1, .ndim = -1, .dtype = -1, .device = -1, .autograd_meta = -1};

static PyObject *name_dtype, *name_device, *name_shape, *name_stride, *name_requires_grad, *name_layout, *name_raw_repr;

#define IMPL(t) (*(char **)((char *)(t) + torch.impl))
/* the shim takes a pointer to at::Tensor, which is one pointer to the implementation */
#define HANDLE(t) ((void *)((char *)(t) + torch.impl))
#define FIELD(p, type, offset) (*(type *)((p) + (offset)))

static inline const int64_t *direct_sizes(char *p, int64_t ndim)
{
    return ndim <= torch.inline_dims ? &FIELD(p, int64_t, torch.sizes) : FIELD(p, int64_t *, torch.sizes);
}

static inline const int64_t *direct_strides(char *p, int64_t ndim)
{
    return ndim <= torch.inline_dims ? &FIELD(p, int64_t, torch.strides) : FIELD(p, int64_t *, torch.sizes) + ndim;
}

static inline int direct_requires_grad(char *p)
{
    /* without autograd metadata a tensor cannot require grad; that saves most calls */
    if (torch.autograd_meta >= 0 && FIELD(p, void *, torch.autograd_meta) == NULL)
        return 0;
    return torch.requires_grad(p) & 1;
}

/* ---- matching ---- */
static inline int dims_match(const TensorSpec *spec, const int64_t *sizes, const int64_t *strides)
{
    if (FJ_LIKELY(!(spec->free_sizes | spec->free_strides))) {
        for (int64_t d = 0; d < spec->ndim; d++)
            if (sizes[d] != spec->sizes[d] || strides[d] != spec->strides[d])
                return 0;
        return 1;
    }
    for (int64_t d = 0; d < spec->ndim; d++)
        if ((sizes[d] != spec->sizes[d] && !(spec->free_sizes >> d & 1))
            || (strides[d] != spec->strides[d] && !(spec->free_strides >> d & 1)))
            return 0;
    return 1;
}

static inline int match_direct(const TensorSpec *spec, PyObject *value)
{
    char *p = IMPL(value);
    int64_t n = spec->ndim;
    if (FIELD(p, uint64_t, torch.keyset) != spec->keyset || FIELD(p, uint16_t, torch.dtype) != spec->dtype
        || FIELD(p, uint16_t, torch.device) != spec->device || FIELD(p, int64_t, torch.ndim) != n)
        return 0;
    return dims_match(spec, direct_sizes(p, n), direct_strides(p, n)) && direct_requires_grad(p) == spec->requires_grad;
}

static uint64_t keyset_by_attribute(PyObject *tensor, int *error)
{
    PyObject *keys = PyObject_CallOneArg(torch.dispatch_keys, tensor);
    PyObject *raw = keys ? PyObject_CallMethodNoArgs(keys, name_raw_repr) : NULL;
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
    if (torch.get_dtype(h, &dtype) || (uint16_t)dtype != spec->dtype || torch.get_device_type(h, &type)
        || torch.get_device_index(h, &index) || (uint16_t)((uint8_t)type | (uint8_t)index << 8) != spec->device
        || torch.get_layout(h, &layout) || layout != spec->layout      /* before the strides: asking for those of a sparse tensor logs */
        || torch.get_dim(h, &n) || n != spec->ndim || torch.get_sizes(h, &sizes) || torch.get_strides(h, &strides)
        || !dims_match(spec, sizes, strides) || (torch.requires_grad(IMPL(value)) & 1) != spec->requires_grad)
        return 0;
    int error;                            /* the shim knows nothing of the key set (conjugate, inference, functorch tensors) */
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
        if (may_differ >> d & 1)
            continue;
        if (!PyLong_CheckExact(item) || PyLong_AsLongLong(item) != expected[d])
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
    int ok = attribute_is(value, name_dtype, spec->dtype_object) && attribute_is(value, name_layout, spec->layout_object)
        && attribute_is(value, name_device, spec->device_object)
        && attribute_is(value, name_requires_grad, spec->requires_grad ? Py_True : Py_False);
    if (ok) {
        PyObject *shape = PyObject_GetAttr(value, name_shape);
        ok = ints_match(shape, spec->ndim, spec->sizes, spec->free_sizes);
        Py_XDECREF(shape);
    }
    if (ok && spec->strides) {
        PyObject *strides = PyObject_CallMethodNoArgs(value, name_stride);
        ok = ints_match(strides, spec->ndim, spec->strides, spec->free_strides);
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

int tensor_spec_match(const TensorSpec *spec, PyObject *value)
{
    if (FJ_UNLIKELY(!Py_IS_TYPE(value, spec->type)))
        return 0;
    if (FJ_LIKELY(fj_tensor_access == ACCESS_DIRECT && !spec->attributes_only))
        return match_direct(spec, value);
    if (fj_tensor_access == ACCESS_SHIM && !spec->attributes_only)
        return match_shim(spec, value);
    return match_attributes(spec, value);
}

int tensor_spec_runs_python(const TensorSpec *spec)
{
    return spec->attributes_only || fj_tensor_access != ACCESS_DIRECT;
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

static int read_bool_attribute(PyObject *obj, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(obj, name);
    int truth = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return truth;
}

static int fill_from_attributes(TensorSpec *spec, PyObject *tensor)
{
    int error, grad;
    if (!(spec->dtype_object = PyObject_GetAttr(tensor, name_dtype)) || !(spec->device_object = PyObject_GetAttr(tensor, name_device))
        || !(spec->layout_object = PyObject_GetAttr(tensor, name_layout)) || (grad = read_bool_attribute(tensor, name_requires_grad)) < 0)
        return -1;
    spec->requires_grad = (int8_t)grad;
    spec->keyset = keyset_by_attribute(tensor, &error);
    if (error)
        return -1;
    PyObject *shape = PyObject_GetAttr(tensor, name_shape);
    if (shape == NULL)
        return -1;
    spec->ndim = PyTuple_Check(shape) ? PyTuple_GET_SIZE(shape) : 0;
    if (spec->ndim > MAX_DIMS) {
        PyErr_SetString(PyExc_ValueError, "a tensor of more than 64 dimensions cannot be guarded");
        Py_DECREF(shape);
        return -1;
    }
    spec->sizes = PyMem_Calloc(2 * spec->ndim + 1, sizeof(int64_t));
    int bad = spec->sizes == NULL || read_ints(shape, spec->ndim, spec->sizes) < 0;
    Py_DECREF(shape);
    if (bad)
        return -1;
    PyObject *strides = PyObject_CallMethodNoArgs(tensor, name_stride);
    if (strides == NULL) {                /* sparse and other layouts without strides */
        PyErr_Clear();
        spec->attributes_only = 1;
        return 0;
    }
    spec->strides = spec->sizes + spec->ndim;
    bad = read_ints(strides, spec->ndim, spec->strides) < 0;
    Py_DECREF(strides);
    return bad ? -1 : 0;
}

/* The integers under dtype and device have no Python name: they are read from the tensor itself, and whatever way of reading disagrees
 * with the attributes (a subclass that computes its sizes, say) is not used for this tensor. */
static int fill_native(TensorSpec *spec, PyObject *tensor)
{
    if (torch.impl < 0 || torch.get_dtype == NULL || torch.requires_grad == NULL) {
        spec->attributes_only = 1;
        return 0;
    }
    int32_t dtype, type, index;
    void *h = HANDLE(tensor);
    if (torch.get_dtype(h, &dtype) || torch.get_device_type(h, &type) || torch.get_device_index(h, &index)
        || torch.get_layout(h, &spec->layout)) {
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

TensorSpec *tensor_spec_new(PyObject *payload)
{
    PyObject *tensor = payload;
    unsigned long long free_sizes = 0, free_strides = 0;
    if (PyTuple_Check(payload)) {
        if (!PyArg_ParseTuple(payload, "OK|K;C_TENSOR takes a tensor or (tensor, free sizes[, free strides])", &tensor, &free_sizes, &free_strides))
            return NULL;
        if (PyTuple_GET_SIZE(payload) == 2)
            free_strides = free_sizes;
    }
    if (torch.tensor_type == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "tensor layout is not known yet: import framejit.guards.tensor_layout first");
        return NULL;
    }
    if (!PyObject_TypeCheck(tensor, torch.tensor_type)) {
        PyErr_Format(PyExc_TypeError, "C_TENSOR takes a tensor, not %.100s", Py_TYPE(tensor)->tp_name);
        return NULL;
    }
    TensorSpec *spec = PyMem_Calloc(1, sizeof(TensorSpec));
    if (spec == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    spec->type = (PyTypeObject *)Py_NewRef(Py_TYPE(tensor));
    spec->free_sizes = free_sizes;
    spec->free_strides = free_strides;
    if (fill_from_attributes(spec, tensor) < 0 || fill_native(spec, tensor) < 0) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        tensor_spec_free(spec);
        return NULL;
    }
    return spec;
}

void tensor_spec_free(TensorSpec *spec)
{
    Py_XDECREF(spec->type);
    Py_XDECREF(spec->dtype_object);
    Py_XDECREF(spec->device_object);
    Py_XDECREF(spec->layout_object);
    PyMem_Free(spec->sizes);
    PyMem_Free(spec);
}

int tensor_spec_traverse(TensorSpec *spec, visitproc visit, void *arg)
{
    Py_VISIT(spec->type);
    return 0;
}

/* ---- calibration ---- */
typedef struct { char *p; int64_t *sizes, *strides; int64_t ndim; int32_t dtype, type, index; uint64_t keyset; int grad, has_meta; } Probe;

static void *symbol(void *library, const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

static int load_symbols(void)
{
    void *cpu = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY), *c10 = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY);
    *(void **)&torch.get_sizes = symbol(cpu, "aoti_torch_get_sizes");
    *(void **)&torch.get_strides = symbol(cpu, "aoti_torch_get_strides");
    *(void **)&torch.get_dtype = symbol(cpu, "aoti_torch_get_dtype");
    *(void **)&torch.get_device_type = symbol(cpu, "aoti_torch_get_device_type");
    *(void **)&torch.get_device_index = symbol(cpu, "aoti_torch_get_device_index");
    *(void **)&torch.get_layout = symbol(cpu, "aoti_torch_get_layout");
    *(void **)&torch.get_dim = symbol(cpu, "aoti_torch_get_dim");
    *(void **)&torch.requires_grad = symbol(c10, "_ZNK3c1010TensorImpl13requires_gradEv");
    return torch.get_sizes && torch.get_strides && torch.get_dtype && torch.get_device_type && torch.get_device_index && torch.get_layout
        && torch.get_dim && torch.requires_grad;
}

/* Offset in the Python object of the pointer that t._cdata gives, the same in every probe. */
static Py_ssize_t find_impl(PyObject *probes)
{
    Py_ssize_t size = torch.tensor_type->tp_basicsize;
    for (Py_ssize_t offset = sizeof(PyObject); offset + (Py_ssize_t)sizeof(void *) <= size; offset += sizeof(void *)) {
        Py_ssize_t i, n = PyTuple_GET_SIZE(probes);
        for (i = 0; i < n; i++) {
            PyObject *probe = PyTuple_GET_ITEM(probes, i), *cdata = PyObject_GetAttrString(probe, "_cdata");
            uint64_t address = cdata ? PyLong_AsUnsignedLongLong(cdata) : 0;
            Py_XDECREF(cdata);
            if (PyErr_Occurred())
                return -1;
            if (*(uint64_t *)((char *)probe + offset) != address)
                break;
        }
        if (i == n)
            return offset;
    }
    return -1;
}

static int same_64(char *field, const Probe *probe, const void *get)
{
    return *(uint64_t *)field == ((uint64_t (*)(const Probe *))get)(probe);
}
static int same_16(char *field, const Probe *probe, const void *get)
{
    return *(uint16_t *)field == (uint16_t)((uint64_t (*)(const Probe *))get)(probe);
}
static int null_agrees(char *field, const Probe *probe, const void *get)
{
    (void)get;
    return (*(void **)field != NULL) == probe->has_meta;
}
static uint64_t get_ndim(const Probe *p) { return (uint64_t)p->ndim; }
static uint64_t get_keyset(const Probe *p) { return p->keyset; }
static uint64_t get_dtype(const Probe *p) { return (uint64_t)p->dtype; }
static uint64_t get_device(const Probe *p) { return (uint8_t)p->type | (uint64_t)(uint8_t)p->index << 8; }

/* The only offset in [from, to) at which the field has its known value in every probe; -1 if there is none or more than one. */
static Py_ssize_t find_field(const Probe *probes, int n, int (*same)(char *, const Probe *, const void *), const void *get,
                             Py_ssize_t from, Py_ssize_t to, Py_ssize_t step)
{
    Py_ssize_t found = -1;
    for (Py_ssize_t offset = from; offset < to; offset += step) {
        int i = 0;
        while (i < n && same(probes[i].p + offset, &probes[i], get))
            i++;
        if (i < n)
            continue;
        if (found >= 0)
            return -1;
        found = offset;
    }
    return found;
}

static int find_sizes(const Probe *probes, int n)
{
    Py_ssize_t sizes = -1, strides = -1;
    for (int i = 0; i < n; i++) {
        Py_ssize_t s = (char *)probes[i].sizes - probes[i].p, q = (char *)probes[i].strides - probes[i].p;
        if (probes[i].ndim == 0 || probes[i].ndim > SURELY_INLINE)
            continue;                     /* nothing to see, or perhaps kept outside the tensor */
        if (s < 0 || s >= SCAN_BYTES || q < 0 || q >= SCAN_BYTES)
            return -1;
        if (sizes >= 0 && (s != sizes || q != strides))
            return -1;
        sizes = s;
        strides = q;
    }
    if (sizes < 0 || strides <= sizes)
        return -1;
    torch.sizes = sizes;
    torch.strides = strides;
    torch.inline_dims = (int)((strides - sizes) / (Py_ssize_t)sizeof(int64_t));
    for (int i = 0; i < n; i++) {
        const Probe *probe = &probes[i];
        if (probe->ndim > 0
            && (direct_sizes(probe->p, probe->ndim) != probe->sizes || direct_strides(probe->p, probe->ndim) != probe->strides))
            return -1;
    }
    return 0;
}

static int read_probe(PyObject *tensor, Probe *probe)
{
    int error;
    void *h = HANDLE(tensor);
    probe->p = IMPL(tensor);
    if (torch.get_sizes(h, &probe->sizes) || torch.get_strides(h, &probe->strides) || torch.get_dim(h, &probe->ndim)
        || torch.get_dtype(h, &probe->dtype) || torch.get_device_type(h, &probe->type) || torch.get_device_index(h, &probe->index))
        return -1;
    probe->grad = read_bool_attribute(tensor, name_requires_grad);
    probe->keyset = keyset_by_attribute(tensor, &error);
    return probe->grad < 0 || error ? -1 : 0;
}

static void calibrate_direct(const Probe *probes, int n)
{
    if (find_sizes(probes, n) < 0) {
        torch.sizes = torch.strides = -1;
        return;
    }
    /* the fields before the sizes end where they begin; those after lie within a few words */
    Py_ssize_t after = torch.strides + torch.inline_dims * (Py_ssize_t)sizeof(int64_t), end = after + 64;
    torch.ndim = find_field(probes, n, same_64, get_ndim, torch.sizes - 8, torch.sizes, 8);
    torch.keyset = find_field(probes, n, same_64, get_keyset, after, end, 8);
    torch.dtype = find_field(probes, n, same_16, get_dtype, after, end, 2);
    if (torch.dtype >= 0)
        torch.device = find_field(probes, n, same_16, get_device, torch.dtype + 2, torch.dtype + 8, 1);
    torch.autograd_meta = find_field(probes, n, null_agrees, NULL, 16, torch.sizes - 8, 8);
}

static int put(PyObject *dict, const char *name, Py_ssize_t number)
{
    PyObject *value = PyLong_FromSsize_t(number);
    int bad = value == NULL || PyDict_SetItemString(dict, name, value) < 0;
    Py_XDECREF(value);
    return bad ? -1 : 0;
}

static PyObject *describe_layout(int shim)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL)
        return NULL;
    int direct = shim && torch.impl >= 0 && torch.sizes >= 0 && torch.ndim >= 0 && torch.keyset >= 0 && torch.dtype >= 0 && torch.device >= 0;
    if (put(dict, "impl", torch.impl) < 0 || put(dict, "ndim", torch.ndim) < 0 || put(dict, "sizes", torch.sizes) < 0
        || put(dict, "strides", torch.strides) < 0 || put(dict, "inline_dims", torch.inline_dims) < 0 || put(dict, "keyset", torch.keyset) < 0
        || put(dict, "dtype", torch.dtype) < 0 || put(dict, "device", torch.device) < 0 || put(dict, "autograd_meta", torch.autograd_meta) < 0
        || PyDict_SetItemString(dict, "shim", shim && torch.impl >= 0 ? Py_True : Py_False) < 0
        || PyDict_SetItemString(dict, "direct", direct ? Py_True : Py_False) < 0) {
        Py_DECREF(dict);
        return NULL;
    }
    return dict;
}

static PyObject *setup(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *tensor_type, *dispatch_keys, *probes;
    if (!PyArg_ParseTuple(args, "O!OO!:setup", &PyType_Type, &tensor_type, &dispatch_keys, &PyTuple_Type, &probes))
        return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(probes);
    for (Py_ssize_t i = 0; i < n; i++)
        if (!PyObject_TypeCheck(PyTuple_GET_ITEM(probes, i), (PyTypeObject *)tensor_type)) {
            PyErr_SetString(PyExc_TypeError, "probes are tensors");
            return NULL;
        }
    if (n < 2 || n > MAX_PROBES) {
        PyErr_Format(PyExc_ValueError, "setup takes 2 to %d probes", MAX_PROBES);
        return NULL;
    }
    Py_XSETREF(torch.tensor_type, (PyTypeObject *)Py_NewRef(tensor_type));
    Py_XSETREF(torch.dispatch_keys, Py_NewRef(dispatch_keys));
    int shim = load_symbols();
    torch.impl = find_impl(probes);
    if (torch.impl < 0 && PyErr_Occurred())
        return NULL;
    if (shim && torch.impl >= 0) {
        Probe read[MAX_PROBES];
        for (Py_ssize_t i = 0; i < n; i++) {
            PyObject *probe = PyTuple_GET_ITEM(probes, i);
            if (read_probe(probe, &read[i]) < 0)
                return PyErr_Occurred() ? NULL : describe_layout(0);
            /* a tensor that never met autograd has no autograd metadata: the probes are made so */
            read[i].has_meta = read[i].grad;
        }
        calibrate_direct(read, (int)n);
    }
    return describe_layout(shim);
}

/* ---- for the cross-check and for tests ---- */
static const char *const access_names[] = {"direct", "shim", "attributes"};

static PyObject *tensor_access(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_FromString(access_names[fj_tensor_access]);
}

static PyObject *force_tensor_access(PyObject *module, PyObject *name)
{
    (void)module;
    for (int i = 0; i <= ACCESS_ATTRIBUTES; i++)
        if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, access_names[i]) == 0) {
            int native = torch.impl >= 0 && torch.get_dtype && torch.requires_grad;
            if ((i == ACCESS_DIRECT && (!native || torch.keyset < 0 || torch.device < 0 || torch.ndim < 0)) || (i == ACCESS_SHIM && !native)) {
                PyErr_Format(PyExc_ValueError, "tensors cannot be read in the way '%s' here", access_names[i]);
                return NULL;
            }
            fj_tensor_access = (TensorAccess)i;
            Py_RETURN_NONE;
        }
    PyErr_SetString(PyExc_ValueError, "tensor access is 'direct', 'shim' or 'attributes'");
    return NULL;
}

static PyObject *tensor_matches(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *example, *value;
    if (!PyArg_ParseTuple(args, "OO:tensor_matches", &example, &value))
        return NULL;
    TensorSpec *spec = tensor_spec_new(example);
    if (spec == NULL)
        return NULL;
    int same = tensor_spec_match(spec, value), native = !spec->attributes_only;
    tensor_spec_free(spec);
    return Py_BuildValue("OO", same ? Py_True : Py_False, native ? Py_True : Py_False);
}

static PyMethodDef methods[] = {
    {"setup", setup, METH_VARARGS, "setup(tensor_type, dispatch_keys, probes) -> dict: measures where a tensor keeps its metadata."},
    {"tensor_access", tensor_access, METH_NOARGS, "tensor_access() -> str: how tensors are read: direct, shim or attributes."},
    {"force_tensor_access", force_tensor_access, METH_O, "force_tensor_access(name): choose how tensors are read."},
    {"tensor_matches", tensor_matches, METH_VARARGS,
     "tensor_matches(example, value) -> (bool, bool): whether a guard on example passes value, and whether example can be read natively."},
    {NULL, NULL, 0, NULL},
};

int tensor_access_init(PyObject *module)
{
    if (!(name_dtype = PyUnicode_InternFromString("dtype")) || !(name_device = PyUnicode_InternFromString("device"))
        || !(name_shape = PyUnicode_InternFromString("shape")) || !(name_stride = PyUnicode_InternFromString("stride"))
        || !(name_requires_grad = PyUnicode_InternFromString("requires_grad")) || !(name_layout = PyUnicode_InternFromString("layout"))
        || !(name_raw_repr = PyUnicode_InternFromString("raw_repr")))
        return -1;
    return PyModule_AddFunctions(module, methods);
}
