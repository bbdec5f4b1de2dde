/* libcuda: finding its functions, the contexts that torch's runtime uses, and loading compiled kernels. */
#define _GNU_SOURCE
#include "torch/cuda_driver.h"
#include "torch/torch_shim.h"
#include <dlfcn.h>

CudaDriver fj_cuda;

enum { MAX_DEVICES = 64, FREE_SHARED_BYTES = 48 * 1024, WITHOUT_WAITING_FOR_THE_DEFAULT_STREAM = 1 };
enum { ATTRIBUTE_LOCAL_BYTES = 3, ATTRIBUTE_REGISTERS = 4, ATTRIBUTE_MOST_SHARED_BYTES = 8 };

static const struct { void *place; const char *name; } functions[] = {
    {&fj_cuda.init, "cuInit"},
    {&fj_cuda.error_name, "cuGetErrorName"},
    {&fj_cuda.device_get, "cuDeviceGet"},
    {&fj_cuda.primary_context, "cuDevicePrimaryCtxRetain"},
    {&fj_cuda.context_get, "cuCtxGetCurrent"},
    {&fj_cuda.context_set, "cuCtxSetCurrent"},
    {&fj_cuda.module_load, "cuModuleLoadData"},
    {&fj_cuda.module_unload, "cuModuleUnload"},
    {&fj_cuda.module_function, "cuModuleGetFunction"},
    {&fj_cuda.function_set, "cuFuncSetAttribute"},
    {&fj_cuda.function_get, "cuFuncGetAttribute"},
    {&fj_cuda.launch, "cuLaunchKernel"},
    {&fj_cuda.stream_is_capturing, "cuStreamIsCapturing"},
    {&fj_cuda.event_create, "cuEventCreate"},
    {&fj_cuda.event_destroy, "cuEventDestroy_v2"},
    {&fj_cuda.event_record, "cuEventRecord"},
    {&fj_cuda.event_query, "cuEventQuery"},
    {&fj_cuda.event_elapsed, "cuEventElapsedTime"},
};

int cuda_driver_load(void)
{
    static int loaded;
    if (loaded)
        return 0;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    if (library == NULL) {
        PyErr_Format(fj_plan_unsupported, "the CUDA driver cannot be loaded: %s", dlerror());
        return -1;
    }
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
        if ((*(void **)functions[i].place = dlsym(library, functions[i].name)) == NULL) {
            PyErr_Format(fj_plan_unsupported, "the CUDA driver does not export %s", functions[i].name);
            return -1;
        }
    *(void **)&fj_cuda.function_name = dlsym(library, "cuFuncGetName");
    if (dlsym(library, "cuStreamGetCaptureInfo_v3"))      /* older ones capture no launches that overlap */
        *(void **)&fj_cuda.launch_with = dlsym(library, "cuLaunchKernelEx");
    int error = fj_cuda.init(0);
    if (error) {
        cuda_raise(error, "initialising the CUDA driver", NULL);
        return -1;
    }
    loaded = 1;
    return 0;
}

/* Each under the newest name that is known here. */
int cuda_graphs_load(void)
{
    static const struct { void *place; const char *names[2]; } needed[] = {
        {&fj_cuda.capture_info, {"cuStreamGetCaptureInfo_v3", "cuStreamGetCaptureInfo_v2"}},
        {&fj_cuda.node_set, {"cuGraphExecKernelNodeSetParams_v2", "cuGraphExecKernelNodeSetParams"}},
        {&fj_cuda.stream_create, {"cuStreamCreate"}},
        {&fj_cuda.capture_begin, {"cuStreamBeginCapture_v2"}},
        {&fj_cuda.capture_end, {"cuStreamEndCapture"}},
        {&fj_cuda.instantiate, {"cuGraphInstantiateWithFlags"}},
        {&fj_cuda.graph_launch, {"cuGraphLaunch"}},
        {&fj_cuda.graph_destroy, {"cuGraphDestroy"}},
        {&fj_cuda.executable_destroy, {"cuGraphExecDestroy"}},
        {&fj_cuda.copy, {"cuMemcpyDtoDAsync_v2"}},
        {&fj_cuda.stream_wait, {"cuStreamWaitEvent"}},
        {&fj_cuda.context_wait, {"cuCtxSynchronize"}},
    };
    if (cuda_driver_load() < 0)
        return -1;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++) {
        void *found = dlsym(library, needed[i].names[0]);
        if (i == 0)
            fj_cuda.with_edges = found != NULL;
        if (found == NULL && needed[i].names[1])
            found = dlsym(library, needed[i].names[1]);
        if (found == NULL) {
            PyErr_Format(fj_plan_unsupported, "the CUDA driver does not export %s", needed[i].names[0]);
            return -1;
        }
        *(void **)needed[i].place = found;
    }
    return 0;
}

void cuda_raise(int error, const char *what, void *function)
{
    const char *name = NULL, *kernel = NULL;
    if (fj_cuda.error_name(error, &name) || name == NULL)
        name = "an unknown error";
    if (function && fj_cuda.function_name && fj_cuda.function_name(&kernel, function) == CUDA_DONE && kernel)
        PyErr_Format(PyExc_RuntimeError, "%s '%s' failed: %s (%d)", what, kernel, name, error);
    else
        PyErr_Format(PyExc_RuntimeError, "%s failed: %s (%d)", what, name, error);
}

/* Retained for good: it is the context that torch works in, and it lives as long as the process. */
int cuda_context(int device_index, void **context)
{
    static void *contexts[MAX_DEVICES];
    if (cuda_driver_load() < 0)
        return -1;
    if (device_index < 0 || device_index >= MAX_DEVICES) {
        PyErr_Format(PyExc_ValueError, "there is no CUDA device %d", device_index);
        return -1;
    }
    if (contexts[device_index] == NULL) {
        int device, error = fj_cuda.device_get(&device, device_index);
        if (error == CUDA_DONE)
            error = fj_cuda.primary_context(&contexts[device_index], device);
        if (error) {
            contexts[device_index] = NULL;
            cuda_raise(error, "making the context of a CUDA device", NULL);
            return -1;
        }
    }
    *context = contexts[device_index];
    return 0;
}

int cuda_enter(void *context, void **before)
{
    int error = fj_cuda.context_get(before);
    return error == CUDA_DONE && *before != context ? fj_cuda.context_set(context) : error;
}

/* A thread's current context is also the current device that torch sees: it is put back. */
void cuda_leave(void *context, void *before)
{
    if (before != context)
        fj_cuda.context_set(before);
}

static int load_function(const char *image, const char *name, int shared_bytes, void **module, void **function,
    int *registers, int *local_bytes)
{
    int error = fj_cuda.module_load(module, image);
    if (error)
        return error;
    error = fj_cuda.module_function(function, *module, name);
    if (!error && shared_bytes > FREE_SHARED_BYTES)
        error = fj_cuda.function_set(*function, ATTRIBUTE_MOST_SHARED_BYTES, shared_bytes);
    if (!error)
        error = fj_cuda.function_get(registers, ATTRIBUTE_REGISTERS, *function);
    if (!error)
        error = fj_cuda.function_get(local_bytes, ATTRIBUTE_LOCAL_BYTES, *function);
    if (error)
        fj_cuda.module_unload(*module);
    return error;
}

static PyObject *cuda_load_module(PyObject *self, PyObject *args)
{
    (void)self;
    const char *image, *name;
    Py_ssize_t size;
    int shared_bytes, device_index, registers, local_bytes, error;
    void *context, *before, *module, *function;
    if (!PyArg_ParseTuple(args, "y#sii:cuda_load_module", &image, &size, &name, &shared_bytes, &device_index)
        || cuda_context(device_index, &context) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS                /* PTX would be compiled here, and loading may wait for the device */
    error = cuda_enter(context, &before);
    if (!error) {
        error = load_function(image, name, shared_bytes, &module, &function, &registers, &local_bytes);
        cuda_leave(context, before);
    }
    Py_END_ALLOW_THREADS
    if (error) {
        char what[128];
        PyOS_snprintf(what, sizeof(what), "loading the CUDA kernel '%s'", name);
        cuda_raise(error, what, NULL);
        return NULL;
    }
    return Py_BuildValue("KKii", (unsigned long long)(uintptr_t)module, (unsigned long long)(uintptr_t)function,
        registers, local_bytes);
}

static PyObject *cuda_unload_module(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned long long module;
    int device_index;
    void *context, *before;
    if (!PyArg_ParseTuple(args, "Ki:cuda_unload_module", &module, &device_index)
        || cuda_context(device_index, &context) < 0)
        return NULL;
    int error = cuda_enter(context, &before);
    if (!error) {
        error = fj_cuda.module_unload((void *)(uintptr_t)module);
        cuda_leave(context, before);
    }
    if (error) {
        cuda_raise(error, "unloading a CUDA module", NULL);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *cuda_new_stream(PyObject *self, PyObject *number)
{
    (void)self;
    void *context, *before, *stream = NULL;
    int device_index = (int)PyLong_AsLong(number);
    if (PyErr_Occurred() || cuda_graphs_load() < 0 || cuda_context(device_index, &context) < 0)
        return NULL;
    int error = cuda_enter(context, &before);
    if (!error) {
        error = fj_cuda.stream_create(&stream, WITHOUT_WAITING_FOR_THE_DEFAULT_STREAM);
        cuda_leave(context, before);
    }
    if (error) {
        cuda_raise(error, "making a CUDA stream", NULL);
        return NULL;
    }
    return PyLong_FromVoidPtr(stream);
}

static PyMethodDef methods[] = {
    {"cuda_load_module", cuda_load_module, METH_VARARGS,
     "cuda_load_module(cubin, name, shared_bytes, device_index) -> (module, function, registers, local_bytes): loads "
     "one compiled kernel."},
    {"cuda_unload_module", cuda_unload_module, METH_VARARGS,
     "cuda_unload_module(module, device_index): the functions of the module are gone."},
    {"cuda_new_stream", cuda_new_stream, METH_O,
     "cuda_new_stream(device_index) -> CUstream: a stream that nobody else has, for good."},
    {NULL, NULL, 0, NULL},
};

int cuda_driver_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
