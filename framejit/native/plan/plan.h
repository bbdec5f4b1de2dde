/* Plan: the steps a compiled graph consists of, as plan_build.c lays them out once and plan_run.c runs them for each
 * call.
 *
 * A plan is not written to once it is built, and plans for other sizes share its parts (plan_sizes.c). All that belongs to one call lies in the caller's C stack (a plan with
 * very many values takes a block from the heap), so any number of threads may be inside the same plan, and a step may
 * call Python code that enters it again. */
#ifndef FRAMEJIT_PLAN_H
#define FRAMEJIT_PLAN_H
#include "torch/torch_shim.h"

#pragma GCC visibility push(hidden)

/* A value of a running plan. Of the two forms a tensor can have, the cheap one comes first: */
typedef struct {
    TensorHandle handle;                  /* NULL for a Python object that is no tensor */
    /* NULL until someone needs the tensor as a Python object; the handle is then inside the object */
    PyObject *object;
} PlanValue;

typedef void (*CpuKernel)(char *const *pointers, const int64_t *ints, int64_t begin, int64_t end);

typedef struct {
    int ndim;
    int64_t *sizes, *strides;
} Shape;

typedef struct {
    int slot;
    Shape shape;
    int32_t dtype, device_type, device_index;
    PyObject *arguments;  /* sizes, strides, dtype, device: for torch.empty_strided, which tells why it fails */
} EmptyStep;

typedef struct {
    int slot, base;
    Shape shape;
    int64_t offset;
    int32_t dtype;
    PyObject *arguments;                  /* sizes, strides, offset, dtype: for torch.Tensor.set_ */
} ReinterpretStep;

/* A tensor over an input's memory where nobody else holds that any more, else a fresh one. */
typedef struct {
    EmptyStep fresh;
    ReinterpretStep over;
    int64_t bytes;                        /* of the input's memory */
} InheritStep;

typedef struct {
    CpuKernel kernel;
    int n_tensors, *tensors;
    int64_t *ints, total, grain;
} CpuStep;

typedef struct {
    int slot;
    Shape shape;
    PyObject *repair;                     /* called with a tensor of another shape; gives what to go on with */
} ExpectStep;

typedef struct {
    int slot;
    PyObject *object;
} ConstantStep;

/* A tensor over memory that is the plan's own. It was given out before: while anybody holds that, the fallback runs. */
typedef struct {
    int slot;
    Shape shape;
    PyObject *tensor;
} PlaceStep;

typedef struct {
    int slot;                             /* a tensor's data pointer, or -1: the constant */
    union { int32_t i32; int64_t i64; float f32; double f64; void *pointer; } constant;
} CudaArg;

typedef struct {
    void *function, *context;
    unsigned grid[3], threads, shared_bytes;
    int device_index, n_args;
    int waits;                            /* the kernel itself, for the launch before it, which need not have ended */
    CudaArg *args;
} CudaStep;

/* Where a launch graph is given an address: of an argument of a node of it, the data of a value and so many bytes. */
typedef struct {
    int slot, node, arg;
    int64_t offset;
} GraphPointer;

typedef struct {
    int slot;
    void *place;
    int64_t bytes;
} GraphCopy;

typedef struct {
    PyObject *graph;                      /* a LaunchGraph */
    int n_pointers, n_in, n_out;
    GraphPointer *pointers;
    GraphCopy *in, *out;                  /* from values to places before the launch, and back behind it */
    int32_t device_type;                  /* where values that are copied to places lie */
} GraphStep;

typedef struct CallArg {
    enum { ARG_CONSTANT, ARG_VALUE, ARG_TUPLE, ARG_LIST } kind;
    int slot, n_items;
    PyObject *constant;
    struct CallArg *items;
} CallArg;

typedef struct {
    PyObject *callable, *names;           /* names of the last arguments, or NULL */
    CallArg *args;
    int n_positional, n_args;
    int unpack;                           /* the result is a tuple or list whose items go to the slots */
    int n_results, *results;              /* -1: not wanted */
} CallStep;

typedef struct {
    enum { STEP_EMPTY, STEP_REINTERPRET, STEP_INHERIT, STEP_PLACE, STEP_CPU, STEP_CUDA, STEP_READY, STEP_GRAPH,
        STEP_CALL, STEP_EXPECT, STEP_CONSTANT, STEP_FREE } kind;
    union {
        EmptyStep empty;
        ReinterpretStep reinterpret;
        InheritStep inherit;
        PlaceStep place;
        CpuStep cpu;
        CudaStep cuda;
        PyObject *ready;                  /* a LaunchGraph */
        GraphStep graph;
        CallStep call;
        ExpectStep expect;
        ConstantStep constant;
        int slot;
    };
} PlanStep;

typedef struct PlanBlock PlanBlock;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *keep;                       /* list of every Python object that the steps borrow; NULL once cleared */
    PyObject *fallback, *name;
    PyObject *aligned_copy;               /* gives the copies; NULL where there are none */
    PlanBlock *blocks;                    /* the memory that the steps lie in */
    PlanStep *steps;
    CallArg *outputs;
    int *aligned;
    int *copied;                          /* those of them that a copy may stand for */
    int *alone;                           /* inputs that are written: their memory must be no other input's */
    GraphCopy *fixed;                     /* inputs whose memory must lie where it did */
    int64_t *spans;  /* bytes from each input's first element to its last; read only if some input is written */
    int n_inputs, n_values, n_steps, n_outputs, n_aligned, n_copied, n_alone, n_fixed;
    int frees_inputs;  /* some step lets go of an input, which the plan therefore holds as it holds its other values */
    int diverts;                          /* some step may say that the fallback is to run */
    int n_scratch;                        /* words that the greediest step needs */
} Plan;

extern PyTypeObject Value_Type, CudaGraph_Type, LaunchGraph_Type;

typedef struct {
    PyObject_HEAD
    PyObject *weak;
    void *stream, *context, *captured, *executable;   /* the last is NULL unless it can be launched */
    int device_index, stream_captured;
} CudaGraph;
int value_index(PyObject *value);         /* of a Value */

/* plan_build.c */
/* -1 with an exception */
int plan_build(Plan *plan, PyObject *steps, PyObject *outputs, PyObject *aligned, PyObject *copied, PyObject *alone,
    PyObject *spans, PyObject *fixed);
void plan_free_blocks(Plan *plan);
/* plan_sizes.c */
PyObject *plan_for_sizes(PyObject *plan, PyObject *args, PyObject *kwargs);

/* plan_accept.c */
enum { PLAN_UNALIGNED = 2 };  /* inputs lie where kernels don't take them; copies may stand for them */
/* 1: the plan can run with these inputs; 0: the fallback is to run; PLAN_UNALIGNED; -1 with an exception */
int plan_accept(const Plan *plan, PyObject *const *args);
/* a list of the inputs, with copies of those that are not aligned; NULL without an exception where one must not be
 * copied */
PyObject *plan_aligned_inputs(const Plan *plan, PyObject *const *args);
/* plan_run.c */
PyObject *plan_call(PyObject *plan, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* 0, PLAN_DIVERTED, or -1 with an exception */
int plan_run_step(const PlanStep *step, PlanValue *values, void **scratch);
int plan_check_call(const Plan *plan, PyObject *const *args, Py_ssize_t n_args, int has_names);
/* takes the inputs out of the list, so that they go after their last use */
PyObject *plan_consume(PyObject *plan, PyObject *list);
/* plan_call_step.c */
int run_call(const CallStep *step, PlanValue *values, void **scratch);
int run_expect(const ExpectStep *step, PlanValue *value);
void run_constant(const ConstantStep *step, PlanValue *value);
PyObject *plan_value_object(PlanValue *value);                 /* borrowed; NULL with an exception */
void plan_value_drop(PlanValue *value);
/* plan_cpu.c */
void run_cpu(const CpuStep *step, char *const *pointers);
/* plan_graph.c */
enum { PLAN_DIVERTED = 1 };  /* nothing was done that can be seen: the plan's fallback is to run instead */
int run_ready(PyObject *launch_graph);
int run_graph(const GraphStep *step, const PlanValue *values, void **scratch);
/* plan_trace.c */
PyObject *plan_traced(PyObject *plan, PyObject *args);
/* plan_cuda.c */
int run_cuda(const CudaStep *step, const PlanValue *values, void **scratch);

int plan_init(PyObject *module);

/* The data pointer of a tensor value; -1 with an exception. */
static inline int plan_value_data(const PlanValue *value, void **data)
{
    if (FJ_LIKELY(value->handle != NULL && fj_shim.get_data_ptr(value->handle, data) == 0))
        return 0;
    PyErr_SetString(PyExc_TypeError, "a kernel was given a value that has no memory");
    return -1;
}

#pragma GCC visibility pop
#endif
