/* C_VERSION: nothing was written into a tensor since, as far as its version counter and the address of its data tell.
 *
 * torch keeps the counter outside of the tensor, because views share that of their base: the tensor has a pointer to an
 * object in which the number lies. Where both are is measured on tensors of known versions (guards/tensor_layout.py);
 * unless that succeeds, Python is asked. */
#include "guards/guard_tree.h"
#include "cpython/safe_read.h"
#include "torch/tensor_spec.h"
#include "torch/torch_symbols.h"

/* bytes; what comes before is the table of virtual functions and a reference count */
enum { FIRST_FIELD = 16, FIRST_NUMBER = 8, NUMBER_END = 48 };

static Py_ssize_t counter_offset = -1;    /* in the tensor, of the pointer to the counter */
static Py_ssize_t number_offset = -1;     /* in the counter, of the number; -1: not known */
static int32_t (*get_data_ptr)(void *, void **);
static PyObject *name_version, *name_data_ptr;

/* ---- reading ---- */
static int is_native(void)
{
    return number_offset >= 0 && fj_tensor_access == ACCESS_DIRECT;
}

static inline int read_version(PyObject *tensor, uint32_t *version)
{
    char *counter = FIELD(IMPL(tensor), char *, counter_offset);
    if (FJ_UNLIKELY(counter == NULL))
        return 0;                         /* tensors made in inference mode have none */
    *version = FIELD(counter, uint32_t, number_offset);
    return 1;
}

static FJ_APART int same_by_attribute(PyObject *tensor, uint64_t version, Py_ssize_t address)
{
    PyObject *now = PyObject_GetAttr(tensor, name_version),
        *place = now ? PyObject_CallMethodNoArgs(tensor, name_data_ptr) : NULL;
    int same = place && PyLong_AsUnsignedLongLong(now) == version && PyLong_AsSsize_t(place) == address
        && !PyErr_Occurred();
    Py_XDECREF(now);
    Py_XDECREF(place);
    PyErr_Clear();
    return same;
}

int version_check_passes(uint64_t version, Py_ssize_t address, PyObject *value, int may_run_python)
{
    if (FJ_UNLIKELY(fj_torch.tensor_type == NULL || !PyObject_TypeCheck(value, fj_torch.tensor_type)))
        return FAIL;
    if (FJ_UNLIKELY(!is_native()))
        return may_run_python ? same_by_attribute(value, version, address) : RESTART;
    uint32_t now;
    void *data;
    return read_version(value, &now) && now == version && get_data_ptr(HANDLE(value), &data) == 0
        && (Py_ssize_t)data == address;
}

int version_check_runs_python(void)
{
    return !is_native();
}

int version_check_parse(PyObject *payload, uint64_t *version, Py_ssize_t *address)
{
    unsigned long long number;
    if (!PyTuple_Check(payload)) {
        PyErr_SetString(PyExc_TypeError, "C_VERSION takes a pair (version, address)");
        return -1;
    }
    if (!PyArg_ParseTuple(payload, "Kn;C_VERSION takes a pair (version, address)", &number, address))
        return -1;
    *version = number;
    return 0;
}

/* ---- finding the counter ---- */
static int fits(PyObject *probes, const uint32_t *versions, Py_ssize_t field, Py_ssize_t offset)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(probes); i++) {
        char *counter = FIELD(IMPL(PyTuple_GET_ITEM(probes, i)), char *, field);
        uint32_t number;
        if (counter == NULL || !safe_read(counter + offset, &number, sizeof(number)) || number != versions[i])
            return 0;
    }
    return 1;
}

static int find_counter(PyObject *probes, const uint32_t *versions)
{
    int found = 0;
    for (Py_ssize_t field = FIRST_FIELD; field < fj_torch.sizes; field += sizeof(void *))
        for (Py_ssize_t offset = FIRST_NUMBER; offset < NUMBER_END; offset += sizeof(uint32_t))
            if (fits(probes, versions, field, offset)) {
                counter_offset = field;
                number_offset = offset;
                found++;
            }
    return found == 1;
}

enum { MAX_PROBES = 16 };

static int read_versions(PyObject *probes, uint32_t *versions)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(probes); i++) {
        PyObject *probe = PyTuple_GET_ITEM(probes, i);
        if (!PyObject_TypeCheck(probe, fj_torch.tensor_type)) {
            PyErr_SetString(PyExc_TypeError, "probes are tensors");
            return -1;
        }
        PyObject *version = PyObject_GetAttr(probe, name_version);
        versions[i] = version ? (uint32_t)PyLong_AsUnsignedLong(version) : 0;
        Py_XDECREF(version);
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

static PyObject *setup_versions(PyObject *module, PyObject *probes)
{
    (void)module;
    uint32_t versions[MAX_PROBES];
    counter_offset = number_offset = -1;
    if (!PyTuple_Check(probes) || PyTuple_GET_SIZE(probes) > MAX_PROBES) {
        PyErr_Format(PyExc_TypeError, "setup_versions takes a tuple of up to %d tensors", MAX_PROBES);
        return NULL;
    }
    *(void **)&get_data_ptr = torch_symbol("aoti_torch_get_data_ptr");
    if (PyTuple_GET_SIZE(probes) < 2 || get_data_ptr == NULL || fj_torch.impl < 0 || fj_torch.sizes < 0)
        Py_RETURN_FALSE;
    if (read_versions(probes, versions) < 0)
        return NULL;
    int found = find_counter(probes, versions);
    if (!found)
        counter_offset = number_offset = -1;
    return PyBool_FromLong(found);
}

static PyObject *tensor_version(PyObject *module, PyObject *tensor)
{
    (void)module;
    uint32_t version;
    if (fj_torch.tensor_type == NULL || !PyObject_TypeCheck(tensor, fj_torch.tensor_type)) {
        PyErr_SetString(PyExc_TypeError, "tensor_version takes a tensor");
        return NULL;
    }
    if (number_offset < 0 || !read_version(tensor, &version))
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLong(version);
}

static PyMethodDef methods[] = {
    {"setup_versions", setup_versions, METH_O,
     "setup_versions(probes) -> bool: measures where tensors, of different versions, keep their version; whether it "
     "was found."},
    {"tensor_version", tensor_version, METH_O,
     "tensor_version(tensor) -> int | None: its version as it is read natively; None where it has none, or that cannot "
     "be done."},
    {NULL, NULL, 0, NULL},
};

int guard_version_init(PyObject *module)
{
    name_version = PyUnicode_InternFromString("_version");
    name_data_ptr = PyUnicode_InternFromString("data_ptr");
    return name_version && name_data_ptr ? PyModule_AddFunctions(module, methods) : -1;
}
