/* C_SIZES: a condition over the sizes and strides of tensors, and over ints, that other guards have recorded. */
#include "guards/guard_tree.h"
#include "guards/size_program.h"
#include "torch/tensor_spec.h"

enum { MOST_TENSORS = 64, FEW_TENSORS = 4 };

typedef struct {
    int record;
    int is_number;                        /* an int, read as the size of a dimension 0 */
    /* of the C_TENSOR check that the tensor has passed; NULL: none that vouches for native reading */
    const TensorSpec *spec;
} SizeSlot;

struct SizeCheck {
    SizeProgram *program;
    Py_ssize_t n;
    SizeSlot slots[];
};

/* ---- construction ---- */
/* The slot of an int is given as its complement. NULL with an exception; None for a tensor's. */
static PyObject *number_slot(PyObject *item)
{
    long slot = PyLong_Check(item) ? PyLong_AsLong(item) : 0;
    if (slot == -1 && PyErr_Occurred())
        return NULL;
    return slot < 0 ? PyLong_FromLong(~slot) : Py_NewRef(Py_None);
}

SizeCheck *size_check_new(PyObject *payload, Py_ssize_t n_records)
{
    PyObject *slots, *code;
    if (!PyTuple_Check(payload) || PyTuple_GET_SIZE(payload) != 2 || !PyTuple_Check(PyTuple_GET_ITEM(payload, 0))) {
        PyErr_SetString(PyExc_TypeError, "C_SIZES takes a pair (tuple of record slots, size program)");
        return NULL;
    }
    slots = PyTuple_GET_ITEM(payload, 0);
    code = PyTuple_GET_ITEM(payload, 1);
    Py_ssize_t n = PyTuple_GET_SIZE(slots);
    if (n > MOST_TENSORS) {
        PyErr_Format(PyExc_ValueError, "a size condition relates at most %d tensors", MOST_TENSORS);
        return NULL;
    }
    SizeCheck *check = PyMem_Calloc(1, sizeof(SizeCheck) + n * sizeof(SizeSlot));
    if (check == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    check->n = n;
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_ssize_t slot;
        PyObject *item = PyTuple_GET_ITEM(slots, i), *number = number_slot(item);
        int failed = number == NULL || guard_parse_slot(number == Py_None ? item : number, n_records, &slot) < 0;
        check->slots[i].is_number = number != NULL && number != Py_None;
        Py_XDECREF(number);
        if (failed) {
            size_check_free(check);
            return NULL;
        }
        check->slots[i].record = (int)slot;
    }
    check->program = size_program_new(code, n);
    if (check->program == NULL) {
        size_check_free(check);
        return NULL;
    }
    return check;
}

void size_check_free(SizeCheck *check)
{
    if (check->program)
        size_program_free(check->program);
    PyMem_Free(check);
}

void size_check_attach(SizeCheck *check, const TensorSpec *const *specs)
{
    for (Py_ssize_t i = 0; i < check->n; i++) {
        const TensorSpec *spec = specs[check->slots[i].record];
        check->slots[i].spec = spec && !spec->attributes_only ? spec : NULL;
    }
}

int size_check_runs_python(const SizeCheck *check)
{
    for (Py_ssize_t i = 0; i < check->n; i++)
        if (check->slots[i].spec == NULL && !check->slots[i].is_number)
            return 1;
    return fj_tensor_access == ACCESS_ATTRIBUTES;
}

/* ---- evaluation ---- */
static int dims_by_shim(const TensorSpec *spec, PyObject *tensor, TensorDims *dims)
{
    void *h = HANDLE(tensor);
    int32_t layout;
    int64_t *sizes, *strides;
    if (fj_torch.get_layout(h, &layout) || layout != spec->layout || fj_torch.get_dim(h, &dims->ndim)
        || fj_torch.get_sizes(h, &sizes) || fj_torch.get_strides(h, &strides))
        return 0;
    dims->sizes = sizes;
    dims->strides = strides;
    return 1;
}

/* Type and keys say how a tensor keeps its sizes: with those of the example it can be read as the example could. */
static inline int dims_natively(const TensorSpec *spec, PyObject *value, TensorDims *dims)
{
    if (FJ_UNLIKELY(spec == NULL || !Py_IS_TYPE(value, spec->type)))
        return 0;
    if (FJ_UNLIKELY(fj_tensor_access != ACCESS_DIRECT))
        return fj_tensor_access == ACCESS_SHIM && dims_by_shim(spec, value, dims);
    char *p = IMPL(value);
    if (FJ_UNLIKELY(FIELD(p, uint64_t, fj_torch.keyset) != spec->keyset))
        return 0;
    int64_t ndim = FIELD(p, int64_t, fj_torch.ndim);
    *dims = (TensorDims){direct_sizes(p, ndim), direct_strides(p, ndim), ndim};
    return 1;
}

static int is_tensor(PyObject *value)
{
    return value && fj_torch.tensor_type && PyObject_TypeCheck(value, fj_torch.tensor_type);
}

/* An int as a tensor whose one size it is. 0 for what is none, or takes more than 64 bits. */
static inline int dims_of_number(PyObject *value, TensorDims *dims, int64_t *number)
{
    int overflow;
    if (value == NULL || !PyLong_CheckExact(value))
        return 0;
    *number = PyLong_AsLongLongAndOverflow(value, &overflow);
    *dims = (TensorDims){number, NULL, 1};
    return !overflow;
}

/* Everything that may run Python comes before the first look into a tensor's own memory, which Python may give back. */
static FJ_APART int evaluate_slowly(const SizeCheck *check, PyObject *const *records)
{
    TensorDims dims[MOST_TENSORS];
    int64_t *numbers = PyMem_Malloc((check->n + 1) * 2 * MAX_DIMS * sizeof(int64_t)), result = 0;
    int readable = numbers != NULL;
    for (Py_ssize_t i = 0; readable && i < check->n; i++) {
        PyObject *value = records[check->slots[i].record];
        int64_t *own = numbers + i * 2 * MAX_DIMS;
        int has_strides;
        if (check->slots[i].is_number)
            readable = dims_of_number(value, &dims[i], own);
        else if (!is_tensor(value))
            readable = 0;
        else if (dims_natively(check->slots[i].spec, value, &dims[i]))
            dims[i].sizes = NULL;
        else {
            readable = tensor_dims_by_attribute(value, own, &dims[i].ndim, &has_strides) == 0;
            dims[i].sizes = own;
            dims[i].strides = has_strides ? own + dims[i].ndim : NULL;
        }
    }
    for (Py_ssize_t i = 0; readable && i < check->n; i++)
        if (dims[i].sizes == NULL)
            readable = dims_natively(check->slots[i].spec, records[check->slots[i].record], &dims[i]);
    int passes = readable && size_program_run(check->program, dims, &result) && result != 0;
    PyMem_Free(numbers);
    PyErr_Clear();
    return passes;
}

static inline int evaluate(const SizeCheck *check, PyObject *const *records, int may_run_python, TensorDims *dims,
    int64_t *numbers)
{
    int64_t result;
    for (Py_ssize_t i = 0; i < check->n; i++) {
        const SizeSlot *slot = &check->slots[i];
        PyObject *value = records[slot->record];
        if (FJ_LIKELY(value != NULL && dims_natively(slot->spec, value, &dims[i])))
            continue;
        if (slot->is_number && dims_of_number(value, &dims[i], &numbers[i]))
            continue;
        if (slot->is_number || !is_tensor(value))
            return FAIL;
        return may_run_python ? evaluate_slowly(check, records) : RESTART;
    }
    return size_program_run(check->program, dims, &result) && result != 0;
}

static FJ_APART int evaluate_many(const SizeCheck *check, PyObject *const *records, int may_run_python)
{
    TensorDims dims[MOST_TENSORS];
    int64_t numbers[MOST_TENSORS];
    return evaluate(check, records, may_run_python, dims, numbers);
}

int size_check_passes(const SizeCheck *check, PyObject *const *records, int may_run_python)
{
    TensorDims dims[FEW_TENSORS];         /* what is usual is spared the larger stack frame and its probes */
    int64_t numbers[FEW_TENSORS];
    return check->n <= FEW_TENSORS ? evaluate(check, records, may_run_python, dims, numbers)
        : evaluate_many(check, records, may_run_python);
}

PyObject *size_check_values(const SizeCheck *check, PyObject *const *records)
{
    PyObject *values = PyTuple_New(check->n);
    for (Py_ssize_t i = 0; values && i < check->n; i++) {
        PyObject *value = records[check->slots[i].record];
        PyTuple_SET_ITEM(values, i, Py_NewRef(value ? value : Py_None));
    }
    return values;
}
