/* The CUDA driver, loaded when first asked for: what the runtime of torch does not give, a kernel of our own on torch's
 * stream and clocks on the device. */
#ifndef FRAMEJIT_CUDA_DRIVER_H
#define FRAMEJIT_CUDA_DRIVER_H
#include "native.h"

#pragma GCC visibility push(hidden)

enum { CUDA_DONE = 0, CUDA_NOT_READY = 600 };

typedef struct {
    int (*init)(unsigned flags);
    int (*error_name)(int error, const char **name);
    int (*device_get)(int *device, int ordinal);
    int (*primary_context)(void **context, int device);
    int (*context_get)(void **context), (*context_set)(void *context);
    int (*module_load)(void **module, const void *image), (*module_unload)(void *module);
    int (*module_function)(void **function, void *module, const char *name);
    int (*function_set)(void *function, int attribute, int value),
        (*function_get)(int *value, int attribute, void *function);
    int (*function_name)(const char **name, void *function);   /* NULL before CUDA 12.3 */
    int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
        unsigned block_z, unsigned shared_bytes, void *stream, void **args, void **extra);
    int (*launch_with)(const void *config, void *function, void **args, void **extra);  /* NULL before CUDA 12.3 */
    int (*stream_is_capturing)(void *stream, int *status);
    int (*event_create)(void **event, unsigned flags), (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream), (*event_query)(void *event);
    int (*event_elapsed)(float *milliseconds, void *start, void *end);
    /* what launch graphs need besides, NULL until cuda_graphs_load(); capture_info is cuStreamGetCaptureInfo_v3 where
       `with_edges` */
    int (*capture_info)(void *stream, int *status, uint64_t *id, void **graph, void *const **last, ...);
    int (*stream_create)(void **stream, unsigned flags);
    int (*capture_begin)(void *stream, int mode), (*capture_end)(void *stream, void **graph);
    int (*instantiate)(void **executable, void *graph, unsigned long long flags);
    int (*graph_launch)(void *executable, void *stream);
    int (*graph_destroy)(void *graph), (*executable_destroy)(void *executable);
    int (*node_set)(void *executable, void *node, const void *kernel_node);
    int (*copy)(uint64_t to, uint64_t from, size_t bytes, void *stream);
    int (*stream_wait)(void *stream, void *event, unsigned flags), (*context_wait)(void);
    int with_edges;
} CudaDriver;
extern CudaDriver fj_cuda;

int cuda_driver_load(void);                                    /* -1 with PlanUnsupported */
int cuda_graphs_load(void);                                    /* -1 with PlanUnsupported */
int cuda_context(int device_index, void **context);  /* the primary context of a device; -1 with an exception */
/* Makes a context this thread's current one; gives what was current before, for leave. Never raises; gives the driver's
 * error. */
int cuda_enter(void *context, void **before);
void cuda_leave(void *context, void *before);
void cuda_raise(int error, const char *what, void *function);          /* RuntimeError; function may be NULL */
int cuda_driver_init(PyObject *module);

#pragma GCC visibility pop
#endif
