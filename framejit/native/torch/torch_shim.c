/* Finds the functions of torch_shim.h, and does in Python what this torch does not export a function for. */
#define _GNU_SOURCE
#include "torch/torch_shim.h"
#include "torch/tensor_spec.h"
#include "torch/torch_symbols.h"
#include "torch/torch_warnings.h"
#include <dlfcn.h>

TorchShim fj_shim;
PyObject *fj_plan_unsupported;

/* Symbols of a library are bound in the global scope first and among its own dependencies after, so that is where
 * torch's runtime is. */
static void *openmp_symbol(void *torch_cpu, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    return found ? found : dlsym(torch_cpu, name);
}

static void find_openmp(void *torch_cpu)
{
    *(void **)&fj_shim.thread_number = openmp_symbol(torch_cpu, "omp_get_thread_num");
    *(void **)&fj_shim.team_size = openmp_symbol(torch_cpu, "omp_get_num_threads");
    if (fj_shim.thread_number && fj_shim.team_size)
        *(void **)&fj_shim.parallel = openmp_symbol(torch_cpu, "GOMP_parallel");
}

/* ---- in place of what is not exported ---- */
static int32_t no_empty(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype, int32_t device_type,
    int32_t device_index, TensorHandle *made)
{
    (void)ndim, (void)sizes, (void)strides, (void)dtype, (void)device_type, (void)device_index, (void)made;
    return 1;                             /* who calls it goes on as where torch refuses, and asks Python */
}

static int32_t no_reinterpret(TensorHandle base, int64_t ndim, const int64_t *sizes, const int64_t *strides,
    int64_t offset, TensorHandle *made)
{
    (void)base, (void)ndim, (void)sizes, (void)strides, (void)offset, (void)made;
    return 1;
}

/* Every tensor of a plan is then inside of a Python object. */
static int32_t data_through_python(TensorHandle tensor, void **data)
{
    PyObject *address = PyObject_CallMethod((PyObject *)((char *)tensor - fj_torch.impl), "data_ptr", NULL);
    *data = address ? PyLong_AsVoidPtr(address) : NULL;
    Py_XDECREF(address);
    if (!PyErr_Occurred())
        return 0;
    PyErr_Clear();
    return 1;
}

/* A number that a function of torch gives; -1 if it raises. */
static long long ask_torch(const char *module, const char *function, const char *format, int argument)
{
    PyObject *owner = PyImport_ImportModule(module),
        *number = owner ? PyObject_CallMethod(owner, function, format, argument) : NULL;
    long long value = number ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(owner);
    Py_XDECREF(number);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return -1;
    }
    return value;
}

static int threads_through_python(void)
{
    long long n = ask_torch("torch", "get_num_threads", NULL, 0);
    return n > 0 ? (int)n : 1;
}

/* ---- finding ---- */
int torch_shim_load(void)
{
    static unsigned loaded;
    if (loaded == fj_symbols_generation)
        return 0;
    void *torch_cpu = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
    if (torch_cpu == NULL) {
        PyErr_SetString(fj_plan_unsupported, "the libraries of torch are not loaded");
        return -1;
    }
    TorchShim *shim = &fj_shim;
    *(void **)&shim->empty_strided = torch_symbol("aoti_torch_empty_strided");
    *(void **)&shim->reinterpret = torch_symbol("aoti_torch__reinterpret_tensor");
    *(void **)&shim->delete_tensor = torch_symbol("aoti_torch_delete_tensor_object");
    *(void **)&shim->get_data_ptr = torch_symbol("aoti_torch_get_data_ptr");
    *(void **)&shim->dtype_size = torch_symbol("aoti_torch_dtype_element_size");
    *(void **)&shim->storage_bytes = torch_symbol("aoti_torch_get_storage_size");
    *(void **)&shim->get_num_threads = torch_symbol("_ZN2at15get_num_threadsEv");
    *(void **)&shim->wrap = torch_symbol("_Z16THPVariable_WrapRKN2at10TensorBaseE");
    /* without one of these a tensor outside of a Python object could not be used, or not be given back */
    int bare = shim->delete_tensor && shim->get_data_ptr && shim->wrap;
    if (!bare || shim->empty_strided == NULL)
        shim->empty_strided = no_empty;
    if (!bare || shim->reinterpret == NULL || shim->dtype_size == NULL)
        shim->reinterpret = no_reinterpret;
    if (shim->get_data_ptr == NULL)
        shim->get_data_ptr = data_through_python;
    if (shim->get_num_threads == NULL)
        shim->get_num_threads = threads_through_python;
    find_openmp(torch_cpu);
    torch_warnings_load();
    loaded = fj_symbols_generation;
    return 0;
}

/* ---- numbers of dtypes and devices ---- */
/* Each has one function that gives its number. Where torch has no such functions, a tensor that has the dtype is made
 * and looked at. */
static int number_by_symbol(const char *prefix, const char *name, int32_t *number)
{
    char symbol[96];
    int32_t (*get)(void);
    PyOS_snprintf(symbol, sizeof(symbol), "%s%s", prefix, name);
    *(void **)&get = torch_symbol(symbol);
    if (get)
        *number = get();
    return get != NULL;
}

static char *empty_tensor(const char *option, PyObject *value, PyObject **made)
{
    PyObject *module = PyImport_ImportModule("torch"), *empty = module ? PyObject_GetAttrString(module, "empty") : NULL;
    PyObject *sizes = empty ? Py_BuildValue("(i)", 0) : NULL,
        *options = sizes ? Py_BuildValue("{sO}", option, value) : NULL;
    *made = options ? PyObject_Call(empty, sizes, options) : NULL;
    Py_XDECREF(module);
    Py_XDECREF(empty);
    Py_XDECREF(sizes);
    Py_XDECREF(options);
    return *made ? IMPL(*made) : NULL;
}

/* Dtypes and devices whose numbers were looked up: that takes longer than the rest of a step. The objects are held. */
enum { REMEMBERED = 32 };
typedef struct {
    PyObject *object;
    int32_t type, index;
} Numbers;
static Numbers dtypes[REMEMBERED], devices[REMEMBERED];

static const Numbers *remembered(const Numbers *known, PyObject *object)
{
    for (int i = 0; i < REMEMBERED && known[i].object; i++) {
        int same = Py_IS_TYPE(object, Py_TYPE(known[i].object))
            ? PyObject_RichCompareBool(known[i].object, object, Py_EQ) : 0;  /* true at once for the same object */
        if (same > 0)
            return &known[i];
        if (same < 0)
            PyErr_Clear();
    }
    return NULL;
}

static void remember(Numbers *known, PyObject *object, int32_t type, int32_t index)
{
    int i = 0;
    while (i < REMEMBERED && known[i].object)
        i++;
    if (i < REMEMBERED)
        known[i] = (Numbers){Py_NewRef(object), type, index};
}

int torch_dtype_number(PyObject *dtype, int32_t *number)
{
    const Numbers *known = remembered(dtypes, dtype);
    if (known) {
        *number = known->type;
        return 0;
    }
    static const char qualifier[] = "torch.";
    PyObject *text = PyObject_Repr(dtype), *made = NULL;
    const char *name = text ? PyUnicode_AsUTF8(text) : NULL, *tensor;
    int status = -1;
    if (name && strcmp(Py_TYPE(dtype)->tp_name, "torch.dtype") != 0)
        PyErr_Format(PyExc_TypeError, "%U is not a torch.dtype", text);
    else if (name && number_by_symbol("aoti_torch_dtype_", name + strlen(qualifier), number))
        status = 0;
    else if (name && torch_symbol("aoti_torch_dtype_float32"))
        PyErr_Format(fj_plan_unsupported, "this torch exports no number of %U, but those of other dtypes", text);
    else if (name && (tensor = empty_tensor("dtype", dtype, &made)) != NULL) {
        *number = FIELD(tensor, uint16_t, fj_torch.dtype);
        status = 0;
    }
    if (status == 0)
        remember(dtypes, dtype, *number, 0);
    Py_XDECREF(made);
    Py_XDECREF(text);
    return status;
}

int torch_device_numbers(PyObject *device, int32_t *type, int32_t *index)
{
    const Numbers *known = remembered(devices, device);
    if (known) {
        *type = known->type;
        *index = known->index;
        return 0;
    }
    PyObject *name = PyObject_GetAttrString(device, "type"),
        *number = name ? PyObject_GetAttrString(device, "index") : NULL, *made = NULL;
    const char *text = number ? PyUnicode_AsUTF8(name) : NULL, *tensor;
    int status = -1;
    if (text && number_by_symbol("aoti_torch_device_type_", text, type))
        status = 0;
    else if (text && fj_torch.device < 0)
        PyErr_Format(fj_plan_unsupported, "this torch does not say which number the device %s has", text);
    else if (text && (tensor = empty_tensor("device", device, &made)) != NULL) {
        *type = FIELD(tensor, int8_t, fj_torch.device);
        status = 0;
    }
    if (status == 0) {
        *index = number == Py_None ? -1 : (int32_t)PyLong_AsLong(number);
        status = PyErr_Occurred() ? -1 : 0;
    }
    if (status == 0 && strcmp(Py_TYPE(device)->tp_name, "torch.device") == 0)
        remember(devices, device, *type, *index);
    Py_XDECREF(made);
    Py_XDECREF(name);
    Py_XDECREF(number);
    return status;
}

int torch_current_cuda_stream(int device_index, void **stream)
{
    static int32_t (*current)(int32_t, void **);
    static unsigned looked;
    if (FJ_UNLIKELY(looked != fj_symbols_generation)) {
        *(void **)&current = torch_symbol("aoti_torch_get_current_cuda_stream");
        looked = fj_symbols_generation;
    }
    if (FJ_LIKELY(current != NULL))
        return current(device_index, stream) ? -1 : 0;
    long long address = ask_torch("torch._C", "_cuda_getCurrentRawStream", "i", device_index);
    *stream = (void *)(intptr_t)address;
    return address < 0 ? -1 : 0;
}

int torch_shim_init(PyObject *module)
{
    fj_plan_unsupported = PyErr_NewExceptionWithDoc("framejit._native.PlanUnsupported",
        "This torch lacks a function that plans are run with.", PyExc_RuntimeError, NULL);
    return fj_plan_unsupported ? PyModule_AddObjectRef(module, "PlanUnsupported", fj_plan_unsupported) : -1;
}
