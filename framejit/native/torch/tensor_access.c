/* Reading a tensor's metadata without torch's headers, in one of three ways:
 *   direct      loads at offsets that setup() measured on known tensors,
 *   shim        the stable C functions that libtorch exports (aoti_torch_get_*),
 *   attributes  PyObject_GetAttr.
 * guards/tensor_layout.py calls setup() at import, compares the ways with each other and chooses the fastest one that is right. */
#define _GNU_SOURCE
#include "torch/tensor_spec.h"
#include <dlfcn.h>

TensorAccess fj_tensor_access = ACCESS_ATTRIBUTES;
TorchLayout fj_torch = {.impl = -1, .keyset = -1, .sizes = -1, .strides = -1, .ndim = -1, .dtype = -1, .device = -1, .autograd_meta = -1};

enum { MAX_PROBES = 64, SCAN_BYTES = 400, SURELY_INLINE = 3 };

typedef struct { char *p; int64_t *sizes, *strides; int64_t ndim; int32_t dtype, type, index; uint64_t keyset; int grad, is_view; } Probe;

static void *symbol(void *library, const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

static int load_symbols(void)
{
    void *cpu = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY), *c10 = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY);
    *(void **)&fj_torch.get_sizes = symbol(cpu, "aoti_torch_get_sizes");
    *(void **)&fj_torch.get_strides = symbol(cpu, "aoti_torch_get_strides");
    *(void **)&fj_torch.get_dtype = symbol(cpu, "aoti_torch_get_dtype");
    *(void **)&fj_torch.get_device_type = symbol(cpu, "aoti_torch_get_device_type");
    *(void **)&fj_torch.get_device_index = symbol(cpu, "aoti_torch_get_device_index");
    *(void **)&fj_torch.get_layout = symbol(cpu, "aoti_torch_get_layout");
    *(void **)&fj_torch.get_dim = symbol(cpu, "aoti_torch_get_dim");
    *(void **)&fj_torch.requires_grad = symbol(c10, "_ZNK3c1010TensorImpl13requires_gradEv");
    return fj_torch.get_sizes && fj_torch.get_strides && fj_torch.get_dtype && fj_torch.get_device_type && fj_torch.get_device_index && fj_torch.get_layout
        && fj_torch.get_dim && fj_torch.requires_grad;
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

/* The first offset in [from, to) at which the field has its known value in every probe, or -1. What lies behind it is not read: the field may be
 * the last one of a tensor. */
static Py_ssize_t find_field(const Probe *probes, int n, int (*same)(char *, const Probe *, const void *), const void *get,
                             Py_ssize_t from, Py_ssize_t to, Py_ssize_t step)
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

/* The same where null and not null are all that is known of the field: there must be no second one. */
static Py_ssize_t find_pointer(const Probe *probes, int n, Py_ssize_t from, Py_ssize_t to)
{
    Py_ssize_t found = find_field(probes, n, null_agrees, NULL, from, to, sizeof(void *));
    return found < 0 || find_field(probes, n, null_agrees, NULL, found + sizeof(void *), to, sizeof(void *)) >= 0 ? -1 : found;
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
    fj_torch.sizes = sizes;
    fj_torch.strides = strides;
    fj_torch.inline_dims = (int)((strides - sizes) / (Py_ssize_t)sizeof(int64_t));
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
    if (fj_torch.get_sizes(h, &probe->sizes) || fj_torch.get_strides(h, &probe->strides) || fj_torch.get_dim(h, &probe->ndim)
        || fj_torch.get_dtype(h, &probe->dtype) || fj_torch.get_device_type(h, &probe->type) || fj_torch.get_device_index(h, &probe->index))
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

static PyObject *describe_layout(int shim)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL)
        return NULL;
    int direct = shim && fj_torch.impl >= 0 && fj_torch.sizes >= 0 && fj_torch.ndim >= 0 && fj_torch.keyset >= 0 && fj_torch.dtype >= 0 && fj_torch.device >= 0;
    if (put(dict, "impl", fj_torch.impl) < 0 || put(dict, "ndim", fj_torch.ndim) < 0 || put(dict, "sizes", fj_torch.sizes) < 0
        || put(dict, "strides", fj_torch.strides) < 0 || put(dict, "inline_dims", fj_torch.inline_dims) < 0 || put(dict, "keyset", fj_torch.keyset) < 0
        || put(dict, "dtype", fj_torch.dtype) < 0 || put(dict, "device", fj_torch.device) < 0 || put(dict, "autograd_meta", fj_torch.autograd_meta) < 0
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
    int shim = load_symbols();
    fj_torch.impl = find_impl(probes);
    if (fj_torch.impl < 0 && PyErr_Occurred())
        return NULL;
    if (shim && fj_torch.impl >= 0) {
        Probe read[MAX_PROBES];
        for (Py_ssize_t i = 0; i < n; i++) {
            PyObject *probe = PyTuple_GET_ITEM(probes, i);
            if (read_probe(probe, &read[i]) < 0)
                return PyErr_Occurred() ? NULL : describe_layout(0);
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
            int native = fj_torch.impl >= 0 && fj_torch.get_dtype && fj_torch.requires_grad;
            if ((i == ACCESS_DIRECT && (!native || fj_torch.keyset < 0 || fj_torch.device < 0 || fj_torch.ndim < 0)) || (i == ACCESS_SHIM && !native)) {
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
    {"setup", setup, METH_VARARGS, "setup(tensor_type, dispatch_keys, probes) -> dict: measures where a tensor keeps its metadata."},
    {"tensor_access", tensor_access, METH_NOARGS, "tensor_access() -> str: how tensors are read: direct, shim or attributes."},
    {"force_tensor_access", force_tensor_access, METH_O, "force_tensor_access(name): choose how tensors are read."},
    {"tensor_matches", tensor_matches, METH_VARARGS,
     "tensor_matches(example, value) -> (bool, bool): whether a guard on example passes value, and whether example can be read natively."},
    {NULL, NULL, 0, NULL},
};

int tensor_access_init(PyObject *module)
{
    return tensor_spec_init() < 0 ? -1 : PyModule_AddFunctions(module, methods);
}
