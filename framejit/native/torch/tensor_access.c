/* Reading a tensor's metadata without torch's headers, in one of three ways:
 *   direct      loads at offsets that setup() measured on known tensors,
 *   shim        the stable C functions that libtorch exports (aoti_torch_get_*), which the first way does without where
 *               one is missing,
 *   attributes  PyObject_GetAttr.
 * guards/tensor_layout.py calls setup() at import, compares the ways with each other and chooses the fastest one that
 * is right. */
#include "cpython/safe_read.h"
#include "torch/tensor_spec.h"
#include "torch/torch_symbols.h"

TensorAccess fj_tensor_access = ACCESS_ATTRIBUTES;
TorchLayout fj_torch = {.impl = -1, .keyset = -1, .sizes = -1, .strides = -1, .ndim = -1, .dtype = -1, .device = -1,
    .autograd_meta = -1};

enum { MAX_PROBES = 64, SCAN_BYTES = 400, SURELY_INLINE = 3 };

typedef struct {
    char *p;
    int64_t dims[2 * MAX_DIMS];           /* sizes, then strides */
    int64_t ndim;
    int32_t dtype, type, index;
    uint64_t keyset;
    int grad, is_view;
} Probe;

static int shim_is_whole;

/* Whether all that the shim's way of reading takes is there. */
static int load_symbols(void)
{
    *(void **)&fj_torch.get_sizes = torch_symbol("aoti_torch_get_sizes");
    *(void **)&fj_torch.get_strides = torch_symbol("aoti_torch_get_strides");
    *(void **)&fj_torch.get_dtype = torch_symbol("aoti_torch_get_dtype");
    *(void **)&fj_torch.get_device_type = torch_symbol("aoti_torch_get_device_type");
    *(void **)&fj_torch.get_device_index = torch_symbol("aoti_torch_get_device_index");
    *(void **)&fj_torch.get_layout = torch_symbol("aoti_torch_get_layout");
    *(void **)&fj_torch.get_dim = torch_symbol("aoti_torch_get_dim");
    *(void **)&fj_torch.requires_grad = torch_symbol("_ZNK3c1010TensorImpl13requires_gradEv");
    return fj_torch.get_sizes && fj_torch.get_strides && fj_torch.get_dtype && fj_torch.get_device_type
        && fj_torch.get_device_index && fj_torch.get_layout && fj_torch.get_dim && fj_torch.requires_grad;
}

/* In place of what torch does not export, at the offsets that were found: right for tensors with strides. */
static int32_t sizes_where_they_are(void *handle, int64_t **sizes)
{
    char *p = *(char **)handle;
    *sizes = (int64_t *)direct_sizes(p, FIELD(p, int64_t, fj_torch.ndim));
    return 0;
}
static int32_t strides_where_they_are(void *handle, int64_t **strides)
{
    char *p = *(char **)handle;
    *strides = (int64_t *)direct_strides(p, FIELD(p, int64_t, fj_torch.ndim));
    return 0;
}
static int32_t dim_where_it_is(void *handle, int64_t *ndim)
{
    *ndim = FIELD(*(char **)handle, int64_t, fj_torch.ndim);
    return 0;
}
static int32_t dtype_where_it_is(void *handle, int32_t *dtype)
{
    *dtype = FIELD(*(char **)handle, uint16_t, fj_torch.dtype);
    return 0;
}
static int32_t device_type_where_it_is(void *handle, int32_t *type)
{
    *type = FIELD(*(char **)handle, int8_t, fj_torch.device);
    return 0;
}
static int32_t device_index_where_it_is(void *handle, int32_t *index)
{
    *index = FIELD(*(char **)handle, int8_t, fj_torch.device + 1);
    return 0;
}
static int32_t strided_layout(void *handle, int32_t *layout) { (void)handle; *layout = 0; return 0; }

static void stand_in(void)
{
#define STAND_IN(name, function) if (fj_torch.name == NULL) fj_torch.name = function
    STAND_IN(get_sizes, sizes_where_they_are);
    STAND_IN(get_strides, strides_where_they_are);
    STAND_IN(get_dim, dim_where_it_is);
    STAND_IN(get_dtype, dtype_where_it_is);
    STAND_IN(get_device_type, device_type_where_it_is);
    STAND_IN(get_device_index, device_index_where_it_is);
    STAND_IN(get_layout, strided_layout);
#undef STAND_IN
}

/* Offset in the Python object of the pointer that t._cdata gives, the same in every probe. */
static Py_ssize_t find_impl(PyObject *probes)
{
    Py_ssize_t size = fj_torch.tensor_type->tp_basicsize;
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
    /* a view has autograd metadata whether it needs it or not; any other tensor that never met autograd has none */
    return probe->is_view ? *(void **)field != NULL : (*(void **)field != NULL) == probe->grad;
}
static uint64_t get_ndim(const Probe *p) { return (uint64_t)p->ndim; }
static uint64_t get_keyset(const Probe *p) { return p->keyset; }
static uint64_t get_dtype(const Probe *p) { return (uint64_t)p->dtype; }
static uint64_t get_device(const Probe *p) { return (uint8_t)p->type | (uint64_t)(uint8_t)p->index << 8; }

/* The first offset in [from, to) at which the field has its known value in every probe, or -1. What lies behind it is
 * not read: the field may be the last one of a tensor. */
static Py_ssize_t find_field(const Probe *probes, int n, int (*same)(char *, const Probe *, const void *),
    const void *get, Py_ssize_t from, Py_ssize_t to, Py_ssize_t step)
{
    for (Py_ssize_t offset = from; offset < to; offset += step) {
        int i = 0;
        while (i < n && same(probes[i].p + offset, &probes[i], get))
            i++;
        if (i == n)
            return offset;
    }
    return -1;
}

/* The offset of a field of which only null and not null are known: there must be no second one that fits. */
static Py_ssize_t find_pointer(const Probe *probes, int n, Py_ssize_t from, Py_ssize_t to)
{
    Py_ssize_t found = find_field(probes, n, null_agrees, NULL, from, to, sizeof(void *));
    return found < 0 || find_field(probes, n, null_agrees, NULL, found + sizeof(void *), to, sizeof(void *)) >= 0 ? -1
        : found;
}

/* The first offset from `from` on at which every probe of few dimensions has these of its numbers. */
static Py_ssize_t find_numbers(const Probe *probes, int n, int strides, Py_ssize_t from)
{
    for (Py_ssize_t offset = from; offset < SCAN_BYTES; offset += sizeof(int64_t)) {
        int seen = 0, same = 1;
        for (int i = 0; i < n && same; i++) {
            int64_t ndim = probes[i].ndim, found[SURELY_INLINE];
            if (ndim == 0 || ndim > SURELY_INLINE)
                continue;                 /* nothing to see, or perhaps kept outside the tensor */
            seen++;
            same = safe_read(probes[i].p + offset, found, ndim * sizeof(int64_t))
                && memcmp(found, probes[i].dims + strides * ndim, ndim * sizeof(int64_t)) == 0;
        }
        if (same && seen > 1)
            return offset;
    }
    return -1;
}

static int find_sizes(const Probe *probes, int n)
{
    Py_ssize_t sizes = find_numbers(probes, n, 0, sizeof(int64_t)),
        strides = sizes < 0 ? -1 : find_numbers(probes, n, 1, sizes + sizeof(int64_t));
    if (strides < 0)
        return -1;
    fj_torch.sizes = sizes;
    fj_torch.strides = strides;
    fj_torch.inline_dims = (int)((strides - sizes) / (Py_ssize_t)sizeof(int64_t));
    for (int i = 0; i < n; i++) {
        int64_t ndim = probes[i].ndim, found[2 * MAX_DIMS];
        size_t bytes = ndim * sizeof(int64_t);
        if (ndim > 0
            && (!safe_read(direct_sizes(probes[i].p, ndim), found, bytes)
            || !safe_read(direct_strides(probes[i].p, ndim), found + ndim, bytes)
            || memcmp(found, probes[i].dims, 2 * bytes) != 0))
            return -1;
    }
    return 0;
}

/* The number of a dtype or a kind of device, as torch's enumerations have had it from the beginning; -1: not one of
 * these. */
static int32_t number_of(PyObject *thing, const char *const *names, const int32_t *numbers)
{
    PyObject *text = PyObject_Str(thing);
    int32_t number = -1;
    for (int i = 0; text && names[i]; i++)
        if (PyUnicode_CompareWithASCIIString(text, names[i]) == 0)
            number = numbers[i];
    Py_XDECREF(text);
    return number;
}

static int read_numbers(PyObject *tensor, Probe *probe)
{
    static const char *const dtypes[] = {"torch.uint8", "torch.int32", "torch.int64", "torch.float16", "torch.float32",
        "torch.float64", "torch.complex64",
                                         "torch.bool", "torch.bfloat16", NULL},
                                         *const devices[] = {"cpu", "cuda", "meta", NULL};
    static const int32_t dtype_numbers[] = {0, 3, 4, 5, 6, 7, 9, 11, 15}, device_numbers[] = {0, 1, 14};
    void *h = HANDLE(tensor);
    PyObject *dtype = PyObject_GetAttrString(tensor, "dtype"),
        *device = dtype ? PyObject_GetAttrString(tensor, "device") : NULL;
    PyObject *type = device ? PyObject_GetAttrString(device, "type") : NULL,
        *index = type ? PyObject_GetAttrString(device, "index") : NULL;
    int status = index ? 0 : -1;
    if (index) {
        probe->dtype = number_of(dtype, dtypes, dtype_numbers);
        probe->type = number_of(type, devices, device_numbers);
        probe->index = index == Py_None ? -1 : (int32_t)PyLong_AsLong(index);
    }
    if (fj_torch.get_dtype && fj_torch.get_dtype(h, &probe->dtype))
        status = -1;
    if (fj_torch.get_device_type && fj_torch.get_device_type(h, &probe->type))
        status = -1;
    Py_XDECREF(dtype);
    Py_XDECREF(device);
    Py_XDECREF(type);
    Py_XDECREF(index);
    return PyErr_Occurred() ? -1 : status;
}

static int read_probe(PyObject *tensor, Probe *probe)
{
    int error, has_strides;
    probe->p = IMPL(tensor);
    if (tensor_dims_by_attribute(tensor, probe->dims, &probe->ndim, &has_strides) < 0 || !has_strides
        || read_numbers(tensor, probe) < 0)
        return -1;
    probe->grad = read_bool_attribute(tensor, fj_name_requires_grad);
    probe->keyset = keyset_by_attribute(tensor, &error);
    PyObject *base = PyObject_GetAttrString(tensor, "_base");
    if (probe->grad < 0 || error || base == NULL)
        return -1;
    probe->is_view = base != Py_None;
    Py_DECREF(base);
    return 0;
}

static void calibrate_direct(const Probe *probes, int n)
{
    if (find_sizes(probes, n) < 0) {
        fj_torch.sizes = fj_torch.strides = -1;
        return;
    }
    /* the fields before the sizes end where they begin; those after lie within a few words */
    Py_ssize_t after = fj_torch.strides + fj_torch.inline_dims * (Py_ssize_t)sizeof(int64_t), end = after + 64;
    fj_torch.ndim = find_field(probes, n, same_64, get_ndim, fj_torch.sizes - 8, fj_torch.sizes, 8);
    fj_torch.keyset = find_field(probes, n, same_64, get_keyset, after, end, 8);
    fj_torch.dtype = find_field(probes, n, same_16, get_dtype, after, end, 2);
    if (fj_torch.dtype >= 0)
        fj_torch.device = find_field(probes, n, same_16, get_device, fj_torch.dtype + 2, fj_torch.dtype + 8, 1);
    fj_torch.autograd_meta = find_pointer(probes, n, 16, fj_torch.sizes - 8);
}

static int put(PyObject *dict, const char *name, Py_ssize_t number)
{
    PyObject *value = PyLong_FromSsize_t(number);
    int bad = value == NULL || PyDict_SetItemString(dict, name, value) < 0;
    Py_XDECREF(value);
    return bad ? -1 : 0;
}

static int direct_is_known(void)
{
    /* without the function, metadata of autograd that is not there says at least that a tensor does not require grad */
    return fj_torch.impl >= 0 && fj_torch.sizes >= 0 && fj_torch.ndim >= 0 && fj_torch.keyset >= 0
        && fj_torch.dtype >= 0 && fj_torch.device >= 0 && (fj_torch.requires_grad || fj_torch.autograd_meta >= 0);
}

static PyObject *describe_layout(int shim)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL)
        return NULL;
    int direct = direct_is_known();
    if (put(dict, "impl", fj_torch.impl) < 0 || put(dict, "ndim", fj_torch.ndim) < 0
        || put(dict, "sizes", fj_torch.sizes) < 0 || put(dict, "strides", fj_torch.strides) < 0
        || put(dict, "inline_dims", fj_torch.inline_dims) < 0 || put(dict, "keyset", fj_torch.keyset) < 0
        || put(dict, "dtype", fj_torch.dtype) < 0 || put(dict, "device", fj_torch.device) < 0
        || put(dict, "autograd_meta", fj_torch.autograd_meta) < 0
        || PyDict_SetItemString(dict, "shim", shim && fj_torch.impl >= 0 ? Py_True : Py_False) < 0
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
    Py_XSETREF(fj_torch.tensor_type, (PyTypeObject *)Py_NewRef(tensor_type));
    Py_XSETREF(fj_torch.dispatch_keys, Py_NewRef(dispatch_keys));
    fj_torch.sizes = fj_torch.ndim = fj_torch.keyset = fj_torch.dtype = fj_torch.device = fj_torch.autograd_meta = -1;
    shim_is_whole = load_symbols();
    fj_torch.impl = find_impl(probes);
    if (fj_torch.impl < 0 && PyErr_Occurred())
        return NULL;
    if (fj_torch.impl >= 0) {
        Probe *read = PyMem_Malloc(n * sizeof(Probe));
        if (read == NULL)
            return PyErr_NoMemory();
        Py_ssize_t i = 0;
        while (i < n && read_probe(PyTuple_GET_ITEM(probes, i), &read[i]) == 0)
            i++;
        if (i == n)
            calibrate_direct(read, (int)n);
        PyMem_Free(read);
        if (PyErr_Occurred())
            return NULL;
        if (direct_is_known())
            stand_in();
    }
    return describe_layout(shim_is_whole);
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
            if ((i == ACCESS_DIRECT && !direct_is_known())
                || (i == ACCESS_SHIM && !(shim_is_whole && fj_torch.impl >= 0))) {
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
    int same = tensor_spec_match(spec, value, 1), native = !spec->attributes_only;
    tensor_spec_free(spec);
    return Py_BuildValue("OO", same ? Py_True : Py_False, native ? Py_True : Py_False);
}

static PyMethodDef methods[] = {
    {"setup", setup, METH_VARARGS,
     "setup(tensor_type, dispatch_keys, probes) -> dict: measures where a tensor keeps its metadata."},
    {"tensor_access", tensor_access, METH_NOARGS,
     "tensor_access() -> str: how tensors are read: direct, shim or attributes."},
    {"force_tensor_access", force_tensor_access, METH_O, "force_tensor_access(name): choose how tensors are read."},
    {"tensor_matches", tensor_matches, METH_VARARGS,
     "tensor_matches(example, value) -> (bool, bool): whether a guard on example passes value, and whether example can "
     "be read natively."},
    {NULL, NULL, 0, NULL},
};

int tensor_access_init(PyObject *module)
{
    return tensor_spec_init() < 0 ? -1 : PyModule_AddFunctions(module, methods);
}
