/* What libtorch exports for code that is not compiled against its headers: the functions a plan is run with. */
#ifndef FRAMEJIT_TORCH_SHIM_H
#define FRAMEJIT_TORCH_SHIM_H
#include "native.h"

#pragma GCC visibility push(hidden)

typedef void *TensorHandle;               /* the address of an at::Tensor */

typedef struct {
    int32_t (*empty_strided)(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
        int32_t device_type, int32_t device_index, TensorHandle *made);
    /* the offset is added to that of the tensor whose storage is shared */
    int32_t (*reinterpret)(TensorHandle base, int64_t ndim, const int64_t *sizes, const int64_t *strides,
        int64_t offset, TensorHandle *made);
    int32_t (*get_data_ptr)(TensorHandle tensor, void **data);
    int32_t (*delete_tensor)(TensorHandle tensor);
    size_t (*dtype_size)(int32_t dtype);
    int32_t (*storage_bytes)(TensorHandle tensor, int64_t *bytes);              /* may be NULL */
    PyObject *(*wrap)(const void *tensor);                     /* THPVariable_Wrap */
    int (*get_num_threads)(void);                              /* at::get_num_threads */
    /* of the OpenMP runtime that torch itself uses; NULL if it uses none */
    void (*parallel)(void (*body)(void *), void *data, unsigned threads, unsigned flags);
    int (*thread_number)(void), (*team_size)(void);
} TorchShim;
extern TorchShim fj_shim;

extern PyObject *fj_plan_unsupported;     /* the exception PlanUnsupported */

int torch_shim_load(void);                                     /* -1 with PlanUnsupported */
int torch_dtype_number(PyObject *dtype, int32_t *number);      /* -1 with an exception */
int torch_device_numbers(PyObject *device, int32_t *type, int32_t *index);
int torch_current_cuda_stream(int device_index, void **stream);        /* -1 if torch has none; no exception */
int torch_shim_init(PyObject *module);

#pragma GCC visibility pop
#endif
