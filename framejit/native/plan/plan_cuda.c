/* Launching a CUDA kernel on the stream that torch currently uses. */
#include "plan/plan.h"
#include "torch/cuda_driver.h"

enum { PROGRAMMATIC_STREAM_SERIALIZATION = 6 };

typedef struct {
    int id;
    char padding[4];
    union { char bytes[64]; int allowed; } value;
} LaunchAttribute;                        /* CUlaunchAttribute */

typedef struct {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    LaunchAttribute *attributes;
    unsigned n_attributes;
} LaunchConfig;                           /* CUlaunchConfig */

/* Gives the driver's error. */
static int launch(const CudaStep *step, void *stream, void **args)
{
    const unsigned *grid = step->grid;
    if (!step->waits || fj_cuda.launch_with == NULL)
        return fj_cuda.launch(step->function, grid[0], grid[1], grid[2], step->threads, 1, 1, step->shared_bytes,
            stream, args, NULL);
    LaunchAttribute overlaps = {.id = PROGRAMMATIC_STREAM_SERIALIZATION, .value = {.allowed = 1}};
    LaunchConfig config = {{grid[0], grid[1], grid[2]}, {step->threads, 1, 1}, step->shared_bytes, stream, &overlaps,
        1};
    return fj_cuda.launch_with(&config, step->function, args, NULL);
}

int run_cuda(const CudaStep *step, const PlanValue *values, void **scratch)
{
    void **pointers = scratch, **args = scratch + step->n_args, *stream, *before;
    if (FJ_UNLIKELY(!(step->grid[0] && step->grid[1] && step->grid[2])))    /* which the driver takes for an error */
        return 0;
    for (int i = 0; i < step->n_args; i++) {
        CudaArg *arg = &step->args[i];
        args[i] = arg->slot < 0 ? (void *)&arg->constant : (void *)&pointers[i];
        if (arg->slot >= 0 && plan_value_data(&values[arg->slot], &pointers[i]) < 0)
            return -1;
    }
    if (torch_current_cuda_stream(step->device_index, &stream) < 0) {
        PyErr_SetString(PyExc_RuntimeError, "torch gives no CUDA stream");
        return -1;
    }
    PyThreadState *ts = PyEval_SaveThread();      /* a full queue makes the launch wait */
    int error = cuda_enter(step->context, &before);
    if (!error) {
        error = launch(step, stream, args);
        cuda_leave(step->context, before);
    }
    PyEval_RestoreThread(ts);
    if (error) {
        cuda_raise(error, "launching the CUDA kernel", step->function);
        return -1;
    }
    return 0;
}
