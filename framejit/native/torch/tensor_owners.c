/* Whether anybody else holds a tensor or its memory. Torch counts references in the first words of the tensor and of
 * its storage; where the tensor keeps its storage is measured once, at import, and guards/tensor_layout.py tries what
 * comes of it on known tensors. */
#include "torch/tensor_owners.h"
#include "torch/tensor_spec.h"

enum { FIRST_FIELD = 16, COUNT = 8, MAX_PROBES = 16 };  /* a table of virtual functions and the counts come first */

static Py_ssize_t storage_field = -1;

static uint32_t count_of(char *counted)
{
    return __atomic_load_n(&FIELD(counted, uint32_t, COUNT), __ATOMIC_ACQUIRE);
}

/* 0 where it is not known, or the memory is not the tensor's alone. */
static uint32_t count_owners(PyObject *tensor)
{
    if (storage_field < 0)
        return 0;
    char *impl = IMPL(tensor), *storage = FIELD(impl, char *, storage_field);
    return storage && count_of(storage) == 1 ? count_of(impl) : 0;
}

int tensor_is_held_once(PyObject *tensor)
{
    return count_owners(tensor) == 1;
}

static int fits(PyObject *probes, const unsigned long long *storages, Py_ssize_t field)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(probes); i++)
        if (FIELD(IMPL(PyTuple_GET_ITEM(probes, i)), uintptr_t, field) != storages[i])
            return 0;
    return 1;
}

static PyObject *setup_owners(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *probes, *addresses;
    unsigned long long storages[MAX_PROBES];
    if (!PyArg_ParseTuple(args, "O!O!:setup_owners", &PyTuple_Type, &probes, &PyTuple_Type, &addresses))
        return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(probes);
    if (n > MAX_PROBES || n != PyTuple_GET_SIZE(addresses)) {
        PyErr_Format(PyExc_ValueError, "setup_owners takes up to %d tensors and an address for each", MAX_PROBES);
        return NULL;
    }
    storage_field = -1;
    if (n < 2 || fj_torch.impl < 0 || fj_torch.sizes < 0)
        Py_RETURN_FALSE;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!PyObject_TypeCheck(PyTuple_GET_ITEM(probes, i), fj_torch.tensor_type)) {
            PyErr_SetString(PyExc_TypeError, "probes are tensors");
            return NULL;
        }
        storages[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(addresses, i));
    }
    if (PyErr_Occurred())
        return NULL;
    for (Py_ssize_t field = FIRST_FIELD; field < fj_torch.sizes && storage_field < 0; field += sizeof(void *))
        if (fits(probes, storages, field))
            storage_field = field;
    return PyBool_FromLong(storage_field >= 0);
}

static PyObject *owners(PyObject *module, PyObject *tensor)
{
    (void)module;
    if (fj_torch.tensor_type == NULL || !PyObject_TypeCheck(tensor, fj_torch.tensor_type)) {
        PyErr_SetString(PyExc_TypeError, "owners takes a tensor");
        return NULL;
    }
    return PyLong_FromUnsignedLong(count_owners(tensor));
}

/* -1 where it is not known */
static int share_memory(PyObject *const *tensors, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        if (storage_field < 0 || !PyObject_TypeCheck(tensors[i], fj_torch.tensor_type))
            return -1;
        char *mine = FIELD(IMPL(tensors[i]), char *, storage_field);
        for (Py_ssize_t j = 0; j < i; j++)
            if (mine != NULL && mine == FIELD(IMPL(tensors[j]), char *, storage_field))
                return 1;
    }
    return 0;
}

static PyObject *call_where_shared(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs < 1) {
        PyErr_SetString(PyExc_TypeError, "call_where_shared takes a callable and tensors");
        return NULL;
    }
    if (FJ_LIKELY(share_memory(args + 1, nargs - 1) == 0))
        Py_RETURN_NONE;
    return PyObject_Vectorcall(args[0], args + 1, nargs - 1, NULL);
}

static PyMethodDef methods[] = {
    {"setup_owners", setup_owners, METH_VARARGS,
     "setup_owners(probes, storages) -> bool: measures where tensors keep their storages, which lie at the given "
     "addresses; whether it was found."},
    {"owners", owners, METH_O,
     "owners(tensor) -> int: how many of torch's references there are to it, with that of its Python object, where its "
     "memory is its alone; 0 where it is not, or nothing is known."},
    {"call_where_shared", (PyCFunction)(void (*)(void))call_where_shared, METH_FASTCALL,
     "call_where_shared(f, *tensors) -> f(*tensors) where any two tensors may have one storage; else None."},
    {NULL, NULL, 0, NULL},
};

int tensor_owners_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
