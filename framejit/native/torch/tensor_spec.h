/* A tensor guard, and the way of reading a tensor that guards nearly always take: loads at known offsets. */
#ifndef FRAMEJIT_TENSOR_SPEC_H
#define FRAMEJIT_TENSOR_SPEC_H
#include "native.h"

#pragma GCC visibility push(hidden)

enum { MAX_DIMS = 64, ASK_PYTHON = 2 };

struct TensorSpec {
    PyTypeObject *type;
    uint64_t keyset;
    int64_t ndim;
    uint16_t dtype, device;               /* device: the bytes type and index, as they lie in the tensor */
    int8_t requires_grad;
    int8_t attributes_only;               /* layouts that have no strides, or whose sizes are computed in Python */
    int8_t has_strides;
    uint64_t free_sizes, free_strides;    /* bit d: dimension d may differ */
    int32_t layout;
    PyObject *dtype_object, *device_object, *layout_object;
    int64_t dims[];                       /* sizes, then strides */
};

/* What is known about torch in this process. Offsets of TensorImpl fields, -1 while unknown. */
typedef struct {
    PyTypeObject *tensor_type;
    PyObject *dispatch_keys;              /* torch._C._dispatch_keys */
    Py_ssize_t impl, keyset, sizes, strides, ndim, dtype, device, autograd_meta;
    int inline_dims;                      /* up to so many dimensions, sizes and strides lie in the tensor itself */
    int32_t (*get_sizes)(void *, int64_t **), (*get_strides)(void *, int64_t **), (*get_dtype)(void *, int32_t *);
    int32_t (*get_device_type)(void *, int32_t *), (*get_device_index)(void *, int32_t *),
        (*get_layout)(void *, int32_t *);
    int32_t (*get_dim)(void *, int64_t *);
    uint8_t (*requires_grad)(void *);     /* c10::TensorImpl::requires_grad() const */
} TorchLayout;
extern TorchLayout fj_torch;

/* Names of attributes, interned. */
extern PyObject *fj_name_requires_grad, *fj_name_raw_repr;
uint64_t keyset_by_attribute(PyObject *tensor, int *error);
int read_bool_attribute(PyObject *obj, PyObject *name);
/* Fills dims[2 * MAX_DIMS] with the sizes, then the strides if there are any; -1 with an exception. Runs Python. */
int tensor_dims_by_attribute(PyObject *tensor, int64_t *dims, int64_t *ndim, int *has_strides);

#define IMPL(t) (*(char **)((char *)(t) + fj_torch.impl))
/* the shim takes a pointer to at::Tensor, which is one pointer to the implementation */
#define HANDLE(t) ((void *)((char *)(t) + fj_torch.impl))
#define FIELD(p, type, offset) (*(type *)((p) + (offset)))

static inline const int64_t *direct_sizes(char *p, int64_t ndim)
{
    return ndim <= fj_torch.inline_dims ? &FIELD(p, int64_t, fj_torch.sizes) : FIELD(p, int64_t *, fj_torch.sizes);
}

static inline const int64_t *direct_strides(char *p, int64_t ndim)
{
    return ndim <= fj_torch.inline_dims ? &FIELD(p, int64_t, fj_torch.strides)
        : FIELD(p, int64_t *, fj_torch.sizes) + ndim;
}

/* 1, 0, or ASK_PYTHON */
static inline int direct_requires_grad(char *p)
{
    /* without autograd metadata a tensor cannot require grad; that saves most calls */
    if (fj_torch.autograd_meta >= 0 && FIELD(p, void *, fj_torch.autograd_meta) == NULL)
        return 0;
    return FJ_LIKELY(fj_torch.requires_grad != NULL) ? fj_torch.requires_grad(p) & 1 : ASK_PYTHON;
}

static inline int dims_match(const TensorSpec *spec, const int64_t *sizes, const int64_t *strides)
{
    if (FJ_LIKELY(!(spec->free_sizes | spec->free_strides))) {
        for (int64_t d = 0; d < spec->ndim; d++)
            if (sizes[d] != spec->dims[d] || strides[d] != spec->dims[spec->ndim + d])
                return 0;
        return 1;
    }
    for (int64_t d = 0; d < spec->ndim; d++)
        if ((sizes[d] != spec->dims[d] && !(spec->free_sizes >> d & 1))
            || (strides[d] != spec->dims[spec->ndim + d] && !(spec->free_strides >> d & 1)))
            return 0;
    return 1;
}

/* 1, 0, or ASK_PYTHON */
static inline int match_direct(const TensorSpec *spec, PyObject *value)
{
    char *p = IMPL(value);
    int64_t n = spec->ndim;
    if (FIELD(p, uint64_t, fj_torch.keyset) != spec->keyset || FIELD(p, uint16_t, fj_torch.dtype) != spec->dtype
        || FIELD(p, uint16_t, fj_torch.device) != spec->device || FIELD(p, int64_t, fj_torch.ndim) != n)
        return 0;
    if (!dims_match(spec, direct_sizes(p, n), direct_strides(p, n)))
        return 0;
    int grad = direct_requires_grad(p);
    return FJ_UNLIKELY(grad == ASK_PYTHON) ? ASK_PYTHON : grad == spec->requires_grad;
}

int tensor_spec_match_slowly(const TensorSpec *spec, PyObject *value);

/* 1 or 0, or ASK_PYTHON if only Python can tell and it must not run. Never raises. */
static inline int tensor_spec_match(const TensorSpec *spec, PyObject *value, int may_run_python)
{
    if (FJ_UNLIKELY(!Py_IS_TYPE(value, spec->type)))
        return 0;
    int found = ASK_PYTHON;
    if (FJ_LIKELY(fj_tensor_access == ACCESS_DIRECT && !spec->attributes_only))
        found = match_direct(spec, value);
    return FJ_UNLIKELY(found == ASK_PYTHON) && may_run_python ? tensor_spec_match_slowly(spec, value) : found;
}

#pragma GCC visibility pop
#endif
