/* Finds the functions of torch_shim.h in the libraries that `import torch` has loaded. Nothing is loaded here and nothing is linked to. */
#define _GNU_SOURCE
#include "torch/torch_shim.h"
#include "torch/torch_warnings.h"
#include <dlfcn.h>

TorchShim fj_shim;
PyObject *fj_plan_unsupported;
static void *torch_cpu;

static int find(void *library, const char *name, void *place)
{
    *(void **)place = dlsym(library, name);
    if (*(void **)place != NULL)
        return 0;
    PyErr_Format(fj_plan_unsupported, "this torch does not export %s", name);
    return -1;
}

/* Symbols of a library are bound in the global scope first and among its own dependencies after, so that is where torch's runtime is. */
static void *openmp_symbol(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    return found ? found : dlsym(torch_cpu, name);
}

static void find_openmp(void)
{
    *(void **)&fj_shim.thread_number = openmp_symbol("omp_get_thread_num");
    *(void **)&fj_shim.team_size = openmp_symbol("omp_get_num_threads");
    if (fj_shim.thread_number && fj_shim.team_size)
        *(void **)&fj_shim.parallel = openmp_symbol("GOMP_parallel");
}

int torch_shim_load(void)
{
    static int loaded;
    if (loaded)
        return 0;
    void *python = dlopen("libtorch_python.so", RTLD_NOLOAD | RTLD_LAZY);
    torch_cpu = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
    if (torch_cpu == NULL || python == NULL) {
        PyErr_SetString(fj_plan_unsupported, "the libraries of torch are not loaded");
        return -1;
    }
    if (find(torch_cpu, "aoti_torch_empty_strided", &fj_shim.empty_strided) < 0
        || find(torch_cpu, "aoti_torch__reinterpret_tensor", &fj_shim.reinterpret) < 0
        || find(torch_cpu, "aoti_torch_get_data_ptr", &fj_shim.get_data_ptr) < 0
        || find(torch_cpu, "aoti_torch_delete_tensor_object", &fj_shim.delete_tensor) < 0
        || find(torch_cpu, "aoti_torch_dtype_element_size", &fj_shim.dtype_size) < 0
        || find(torch_cpu, "_ZN2at15get_num_threadsEv", &fj_shim.get_num_threads) < 0
        || find(python, "_Z16THPVariable_WrapRKN2at10TensorBaseE", &fj_shim.wrap) < 0)
        return -1;
    find_openmp();
    torch_warnings_load();
    loaded = 1;
    return 0;
}

/* Dtypes and device types have one function each that gives their number. */
static int call_number(const char *prefix, const char *name, int32_t *number)
{
    char symbol[96];
    int32_t (*get)(void);
    PyOS_snprintf(symbol, sizeof(symbol), "%s%s", prefix, name);
    if (find(torch_cpu, symbol, &get) < 0)
        return -1;
    *number = get();
    return 0;
}

int torch_dtype_number(PyObject *dtype, int32_t *number)
{
    static const char qualifier[] = "torch.";
    PyObject *text = PyObject_Repr(dtype);
    const char *name = text ? PyUnicode_AsUTF8(text) : NULL;
    int status = -1;
    if (name && strcmp(Py_TYPE(dtype)->tp_name, "torch.dtype") != 0)
        PyErr_Format(PyExc_TypeError, "%U is not a torch.dtype", text);
    else if (name)
        status = call_number("aoti_torch_dtype_", name + strlen(qualifier), number);
    Py_XDECREF(text);
    return status;
}

int torch_device_numbers(PyObject *device, int32_t *type, int32_t *index)
{
    PyObject *name = PyObject_GetAttrString(device, "type"), *number = name ? PyObject_GetAttrString(device, "index") : NULL;
    const char *text = number ? PyUnicode_AsUTF8(name) : NULL;
    int status = text ? call_number("aoti_torch_device_type_", text, type) : -1;
    if (status == 0) {
        *index = number == Py_None ? -1 : (int32_t)PyLong_AsLong(number);
        status = PyErr_Occurred() ? -1 : 0;
    }
    Py_XDECREF(name);
    Py_XDECREF(number);
    return status;
}

int torch_current_cuda_stream(int device_index, void **stream)
{
    static int32_t (*current)(int32_t, void **);
    if (FJ_UNLIKELY(current == NULL)) {
        void *library = dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
        if (library == NULL)
            return -1;
        *(void **)&current = dlsym(library, "aoti_torch_get_current_cuda_stream");
        if (current == NULL)
            return -1;
    }
    return current(device_index, stream) ? -1 : 0;
}

int torch_shim_init(PyObject *module)
{
    fj_plan_unsupported = PyErr_NewExceptionWithDoc("framejit._native.PlanUnsupported", "This torch lacks a function that plans are run with.",
                                                    PyExc_RuntimeError, NULL);
    return fj_plan_unsupported ? PyModule_AddObjectRef(module, "PlanUnsupported", fj_plan_unsupported) : -1;
}
