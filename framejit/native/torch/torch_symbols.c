/* See torch_symbols.h. Nothing is loaded here and nothing is linked to. */
#define _GNU_SOURCE
#include "torch/torch_symbols.h"
#include <dlfcn.h>

static const char *const libraries[] = {"libc10.so", "libtorch_cpu.so", "libtorch_python.so", "libtorch_cuda.so"};

#define SLOW_TENSORS "tensors are read at measured offsets, or else through Python"
#define SLOW_PLANS "plans make, share and drop tensors through Python"
#define SLOW_STATE "Python is asked for this part of torch's state"
#define NO_HANDLER "what operations of a plan warn of is told as by operators that are called by themselves"

static const struct { const char *name, *instead; } symbols[] = {
    /* tensor_access.c */
    {"aoti_torch_get_sizes", SLOW_TENSORS},
    {"aoti_torch_get_strides", SLOW_TENSORS},
    {"aoti_torch_get_dtype", SLOW_TENSORS},
    {"aoti_torch_get_device_type", SLOW_TENSORS},
    {"aoti_torch_get_device_index", SLOW_TENSORS},
    {"aoti_torch_get_layout", SLOW_TENSORS},
    {"aoti_torch_get_dim", SLOW_TENSORS},
    {"_ZNK3c1010TensorImpl13requires_gradEv", "tensors that have met autograd are compared through Python"},
    /* torch_shim.c; guard_version.c */
    {"aoti_torch_empty_strided", SLOW_PLANS},
    {"aoti_torch__reinterpret_tensor", SLOW_PLANS},
    {"aoti_torch_delete_tensor_object", SLOW_PLANS},
    {"_Z16THPVariable_WrapRKN2at10TensorBaseE", SLOW_PLANS},
    {"aoti_torch_get_data_ptr", "Python is asked where a tensor's data lies"},
    {"aoti_torch_dtype_element_size", "plans read memory as another dtype through Python"},
    {"aoti_torch_dtype_float32", "the number of a dtype is read from a tensor of it"},
    {"aoti_torch_device_type_cpu", "the number of a device is read from a tensor on it"},
    {"_ZN2at15get_num_threadsEv", "Python is asked for the number of threads"},
    {"aoti_torch_get_storage_size", "what a backward is given is not written over"},
    {"aoti_torch_get_current_cuda_stream", "Python is asked for the current stream"},
    /* torch_warnings.c */
    {"_ZN3c1012WarningUtils19get_warning_handlerEv", NO_HANDLER},
    {"_ZN3c1012WarningUtils19set_warning_handlerEPNS_14WarningHandlerE", NO_HANDLER},
    {"_ZNK3c107Warning3msgB5cxx11Ev", NO_HANDLER},
    {"_ZNK3c107Warning15source_locationEv", "what operations of a plan warn of does not say where in torch"},
    {"_ZNK3c107Warning4typeEv", "what operations of a plan warn of is a UserWarning"},
    {"_ZNK3c107Warning8verbatimEv", "what operations of a plan warn of says where in torch"},
    /* autograd_nodes.c */
    {"_ZN5torch8autograd4impl14grad_fn_unsafeERKN2at6TensorE",
     "a backward is compiled for each place where gradients may be asked for"},
    /* thread_state.c */
    {"_ZN3c104impl26raw_local_dispatch_key_setE", SLOW_STATE},
    {"_ZN3c1013AutogradState13get_tls_stateEv", SLOW_STATE},
    {"_ZN3c1031get_default_dtype_as_scalartypeEv", SLOW_STATE},
    {"_ZN2at4impl22PythonTorchFunctionTLS9get_stateEv",
     "two functions of torch are called for the modes of torch functions"},
    {"_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", "the modes of torch functions are read from memory"},
    {"_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv", "the modes of torch functions are read from memory"},
    {"_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", SLOW_STATE},
    {"_ZN2at8autocast25is_autocast_cache_enabledEv", SLOW_STATE},
    {"_ZN5torch8autograd11AnomalyMode8_enabledE", SLOW_STATE},
    {"_ZN2at13globalContextEv", SLOW_STATE},
    {"_ZNK2at7Context23deterministicAlgorithmsEv", SLOW_STATE},
    {"_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv", SLOW_STATE},
    {"_ZNK2at7Context36deterministicFillUninitializedMemoryEv", SLOW_STATE},
};

unsigned fj_symbols_generation = 1;
static PyObject *withheld;                /* set of names that count as missing, or NULL */

static int is_withheld(const char *name)
{
    PyObject *text = withheld ? PyUnicode_FromString(name) : NULL;
    int found = text ? PySet_Contains(withheld, text) : 0;
    Py_XDECREF(text);
    if (found < 0)
        PyErr_Clear();
    return found > 0;
}

void *torch_symbol(const char *name)
{
    void *found = NULL;
    for (size_t i = 0; i < Py_ARRAY_LENGTH(libraries) && !found && !is_withheld(name); i++) {
        void *library = dlopen(libraries[i], RTLD_NOLOAD | RTLD_LAZY);
        if (library) {
            found = dlsym(library, name);
            dlclose(library);             /* it stays loaded: torch holds it */
        }
    }
    return found;
}

static PyObject *torch_symbols(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < Py_ARRAY_LENGTH(symbols); i++) {
        PyObject *item = Py_BuildValue("(Os)", torch_symbol(symbols[i].name) ? Py_True : Py_False, symbols[i].instead);
        if (item == NULL || PyDict_SetItemString(dict, symbols[i].name, item) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(item);
    }
    return dict;
}

static PyObject *withhold_symbols(PyObject *module, PyObject *names)
{
    (void)module;
    PyObject *set = PySet_New(names);
    if (set == NULL)
        return NULL;
    Py_XSETREF(withheld, set);
    fj_symbols_generation++;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"torch_symbols", torch_symbols, METH_NOARGS,
     "torch_symbols() -> dict of name -> (bool, str): whether torch exports it, and what is done in its place where it "
     "does not."},
    {"withhold_symbols", withhold_symbols, METH_O,
     "withhold_symbols(names): these count as missing, for whoever looks for them from now on. It shows what is done "
     "in their place."},
    {NULL, NULL, 0, NULL},
};

int torch_symbols_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
