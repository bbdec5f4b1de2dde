/* Launching a captured CUDA graph in the place of the launches it was captured from.
 *
 * An instantiated graph keeps the arguments of its kernels; before each launch those that are addresses of this call's
 * tensors are set anew (cuGraphExecKernelNodeSetParams, which launches under way do not see). What only a library knows
 * the arguments of lies at fixed places, which are copied to before the launch and from behind it. */
#include "plan/plan_builder.h"
#include "torch/cuda_driver.h"
#include "torch/tensor_spec.h"

enum { MAX_DEVICES = 64, WITHOUT_TIMING = 2 };

/* CUDA_KERNEL_NODE_PARAMS; the older form of it lacks the last two */
typedef struct {
    void *function;
    unsigned grid[3], block[3], shared_bytes;
    void **arguments, **extra;
    void *kernel, *context;
} KernelNode;

typedef struct {
    void *node;
    KernelNode kernel;
    CudaArg *args;
    int n_args, changed;
} GraphNode;

typedef struct {
    PyObject_HEAD
    CudaGraph *graph;
    PyObject *error;                      /* why it can't be launched any more, or NULL */
    int n_nodes;
    int keeps;                            /* results lie in memory of its own: what reads them runs on one stream */
    void *stream;                         /* where it keeps some, the one it was launched on first */
    long long launches;
    GraphNode *nodes;
} LaunchGraph;

/* All graphs of a device share their memory, so that they run one behind the other, and one thread at a time sets
 * arguments and launches. */
typedef struct {
    PyThread_type_lock lock;
    int used;
    void *stream;                         /* that the last one was launched on */
    void *event;                          /* behind the last one; NULL while there has been but one stream */
} Turns;
static Turns turns_of[MAX_DEVICES];

static Turns *take_turn(int device_index)
{
    Turns *turns = &turns_of[device_index];
    if (turns->lock == NULL && (turns->lock = PyThread_allocate_lock()) == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (!PyThread_acquire_lock(turns->lock, NOWAIT_LOCK)) {
        PyThreadState *ts = PyEval_SaveThread();  /* whoever has it may need the interpreter to go on */
        PyThread_acquire_lock(turns->lock, WAIT_LOCK);
        PyEval_RestoreThread(ts);
    }
    return turns;
}

/* Both give the driver's error. */
static int wait_for_the_last(Turns *turns, void *stream)
{
    if (!turns->used || (turns->stream == stream && turns->event == NULL))
        return CUDA_DONE;
    if (turns->event)
        return turns->stream == stream ? CUDA_DONE : fj_cuda.stream_wait(stream, turns->event, 0);
    PyThreadState *ts = PyEval_SaveThread();
    int error = fj_cuda.context_wait();   /* once: the other stream has no event yet, and may be gone */
    PyEval_RestoreThread(ts);
    return error ? error : fj_cuda.event_create(&turns->event, WITHOUT_TIMING);
}

static int be_the_last(Turns *turns, void *stream)
{
    turns->used = 1;
    turns->stream = stream;
    return turns->event ? fj_cuda.event_record(turns->event, stream) : CUDA_DONE;
}

/* Gives the driver's error. */
static int set_pointers(LaunchGraph *graph, const GraphStep *step, void *const *data)
{
    int error = CUDA_DONE;
    for (int i = 0; i < step->n_pointers; i++) {
        const GraphPointer *pointer = &step->pointers[i];
        GraphNode *node = &graph->nodes[pointer->node];
        void *address = (char *)data[i] + pointer->offset;
        if (node->args[pointer->arg].constant.pointer != address) {
            node->args[pointer->arg].constant.pointer = address;
            node->changed = 1;
        }
    }
    for (int i = 0; i < graph->n_nodes && !error; i++)
        if (graph->nodes[i].changed) {
            error = fj_cuda.node_set(graph->graph->executable, graph->nodes[i].node, &graph->nodes[i].kernel);
            graph->nodes[i].changed = error != CUDA_DONE;
        }
    return error;
}

static int copy_all(const GraphCopy *copies, int n, void *const *data, int back, void *stream)
{
    int error = CUDA_DONE;
    for (int i = 0; i < n && !error; i++) {
        uint64_t place = (uintptr_t)copies[i].place, value = (uintptr_t)data[i];
        if (copies[i].bytes)
            error = fj_cuda.copy(back ? value : place, back ? place : value, copies[i].bytes, stream);
    }
    return error;
}

static int fail(LaunchGraph *graph, int error)
{
    PyObject *type, *value, *trace;
    cuda_raise(error, "giving a CUDA graph new addresses", NULL);
    PyErr_Fetch(&type, &value, &trace);
    graph->error = value ? PyObject_Str(value) : NULL;
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    if (graph->error == NULL)
        return -1;
    return PLAN_DIVERTED;
}

static int launch(LaunchGraph *graph, const GraphStep *step, Turns *turns, void *stream, void *const *data)
{
    void *before, *context = graph->graph->context;
    int error = cuda_enter(context, &before);
    if (error)
        return fail(graph, error);
    error = set_pointers(graph, step, data);
    if (error) {
        cuda_leave(context, before);
        return fail(graph, error);
    }
    error = wait_for_the_last(turns, stream);
    PyThreadState *ts = PyEval_SaveThread();      /* a full queue makes the launch wait */
    if (!error)
        error = copy_all(step->in, step->n_in, data + step->n_pointers, 0, stream);
    if (!error)
        error = fj_cuda.graph_launch(graph->graph->executable, stream);
    if (!error)
        error = copy_all(step->out, step->n_out, data + step->n_pointers + step->n_in, 1, stream);
    int last = be_the_last(turns, stream);
    PyEval_RestoreThread(ts);
    cuda_leave(context, before);
    error = error ? error : last;
    if (error) {
        cuda_raise(error, "launching a CUDA graph", NULL);
        return -1;
    }
    graph->launches++;
    return 0;
}

static int current_stream(const LaunchGraph *graph, void **stream)
{
    if (torch_current_cuda_stream(graph->graph->device_index, stream) == 0)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "torch gives no CUDA stream");
    return -1;
}

/* Whether the graph can be launched here, asked before anything is done that would be done again by the fallback. */
int run_ready(PyObject *launch_graph)
{
    LaunchGraph *graph = (LaunchGraph *)launch_graph;
    void *stream;
    int capturing = 0;
    if (graph->error)
        return PLAN_DIVERTED;
    if (current_stream(graph, &stream) < 0)
        return -1;
    if (fj_cuda.stream_is_capturing(stream, &capturing) || capturing)
        return PLAN_DIVERTED;             /* into a graph of the program's go the plan's own launches */
    if (!graph->keeps)
        return 0;
    if (graph->launches == 0)
        graph->stream = stream;
    return graph->stream == stream ? 0 : PLAN_DIVERTED;
}

int run_graph(const GraphStep *step, const PlanValue *values, void **scratch)
{
    LaunchGraph *graph = (LaunchGraph *)step->graph;
    void *stream;
    int n = 0;
    if (graph->error)
        return PLAN_DIVERTED;
    if (current_stream(graph, &stream) < 0)
        return -1;
    for (int i = 0; i < step->n_pointers; i++)
        if (plan_value_data(&values[step->pointers[i].slot], &scratch[n++]) < 0)
            return -1;
    for (int i = 0; i < step->n_in; i++) {
        const PlanValue *value = &values[step->in[i].slot];
        int32_t type;
        /* what a library keeps for a backward lies on the CPU, at times, where no graph was captured of the forward */
        if (value->handle == NULL || fj_torch.get_device_type == NULL
            || fj_torch.get_device_type(value->handle, &type) || type != step->device_type)
            return PLAN_DIVERTED;
        if (plan_value_data(value, &scratch[n++]) < 0)
            return -1;
    }
    for (int i = 0; i < step->n_out; i++)
        if (plan_value_data(&values[step->out[i].slot], &scratch[n++]) < 0)
            return -1;
    Turns *turns = take_turn(graph->graph->device_index);
    if (turns == NULL)
        return -1;
    int status = launch(graph, step, turns, stream, scratch);
    PyThread_release_lock(turns->lock);
    return status;
}

/* ---- building ---- */
static int read_pointer(PlanBuilder *b, const LaunchGraph *graph, PyObject *description, GraphPointer *pointer)
{
    PyObject *slot;
    long long offset;
    if (!PyTuple_Check(description)) {
        PyErr_Format(PyExc_TypeError, "%R is no address that a graph is given", description);
        return -1;
    }
    if (!PyArg_ParseTuple(description, "OiiL:address of a graph", &slot, &pointer->node, &pointer->arg, &offset)
        || plan_read_slot(b, slot, &pointer->slot) < 0)
        return -1;
    pointer->offset = offset;
    if (pointer->node >= 0 && pointer->node < graph->n_nodes && pointer->arg >= 0
        && pointer->arg < graph->nodes[pointer->node].n_args)
        return 0;
    PyErr_Format(PyExc_IndexError, "there is no argument %d of a node %d", pointer->arg, pointer->node);
    return -1;
}

int plan_build_graph(PlanBuilder *b, PyObject *parts, GraphStep *step)
{
    PyObject *pointers, *in, *out, *device;
    int32_t index;
    if (!PyArg_ParseTuple(parts, "O!O!OOO:graph", &LaunchGraph_Type, &step->graph, &PyTuple_Type, &pointers, &in, &out,
        &device) || torch_device_numbers(device, &step->device_type, &index) < 0)
        return -1;
    step->n_pointers = (int)PyTuple_GET_SIZE(pointers);
    if ((step->pointers = plan_allocate(b->plan, step->n_pointers, sizeof(GraphPointer))) == NULL)
        return -1;
    for (int i = 0; i < step->n_pointers; i++)
        if (read_pointer(b, (LaunchGraph *)step->graph, PyTuple_GET_ITEM(pointers, i), &step->pointers[i]) < 0)
            return -1;
    return (step->in = plan_read_places(b, in, &step->n_in)) == NULL
        || (step->out = plan_read_places(b, out, &step->n_out)) == NULL ? -1 : 0;
}

/* ---- the Python object ---- */
static int read_node(PyObject *description, GraphNode *node)
{
    unsigned long long handle, function;
    int x, y, z, threads, shared_bytes;
    PyObject *args;
    if (!PyTuple_Check(description)) {
        PyErr_Format(PyExc_TypeError, "%R is no node of a graph", description);
        return -1;
    }
    if (!PyArg_ParseTuple(description, "KK(iii)iiO!:node of a graph", &handle, &function, &x, &y, &z, &threads,
        &shared_bytes, &PyTuple_Type, &args))
        return -1;
    node->n_args = (int)PyTuple_GET_SIZE(args);
    node->args = PyMem_Calloc(node->n_args + 1, sizeof(CudaArg));
    node->kernel.arguments = PyMem_Calloc(node->n_args + 1, sizeof(void *));
    if (node->args == NULL || node->kernel.arguments == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    node->node = (void *)(uintptr_t)handle;
    node->kernel.function = (void *)(uintptr_t)function;
    memcpy(node->kernel.grid, (unsigned[]){x, y, z}, sizeof(node->kernel.grid));
    memcpy(node->kernel.block, (unsigned[]){threads, 1, 1}, sizeof(node->kernel.block));
    node->kernel.shared_bytes = shared_bytes;
    for (int i = 0; i < node->n_args; i++) {
        PyObject *number = Py_None, *arg = PyTuple_GET_ITEM(args, i);
        const char *kind;
        node->kernel.arguments[i] = &node->args[i].constant;
        if (!PyTuple_Check(arg)) {
            PyErr_Format(PyExc_TypeError, "%R is no argument of a kernel", arg);
            return -1;
        }
        if (!PyArg_ParseTuple(arg, "s|O:argument of a node", &kind, &number))
            return -1;
        if (strcmp(kind, "p") != 0) {
            if (plan_read_constant(kind, number, &node->args[i]) < 0)
                return -1;
            continue;
        }
        node->args[i].constant.pointer = PyLong_AsVoidPtr(number);
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

static PyObject *launch_graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"graph", "nodes", "keeps", NULL};
    PyObject *captured, *nodes;
    int keeps = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!|p:LaunchGraph", names, &CudaGraph_Type, &captured,
        &PyTuple_Type, &nodes, &keeps))
        return NULL;
    if (((CudaGraph *)captured)->executable == NULL) {
        PyErr_SetString(PyExc_ValueError, "the graph is not whole");
        return NULL;
    }
    LaunchGraph *graph = (LaunchGraph *)type->tp_alloc(type, 0);
    if (graph == NULL)
        return NULL;
    graph->graph = (CudaGraph *)Py_NewRef(captured);
    graph->keeps = keeps;
    graph->nodes = PyMem_Calloc(PyTuple_GET_SIZE(nodes) + 1, sizeof(GraphNode));
    int status = graph->nodes ? 0 : -1;
    if (status < 0)
        PyErr_NoMemory();
    for (; status == 0 && graph->n_nodes < PyTuple_GET_SIZE(nodes); graph->n_nodes++)
        status = read_node(PyTuple_GET_ITEM(nodes, graph->n_nodes), &graph->nodes[graph->n_nodes]);
    if (status < 0)
        Py_CLEAR(graph);
    return (PyObject *)graph;
}

static void launch_graph_dealloc(PyObject *self)
{
    LaunchGraph *graph = (LaunchGraph *)self;
    Py_CLEAR(graph->error);
    Py_CLEAR(graph->graph);
    for (int i = 0; i < graph->n_nodes; i++) {
        PyMem_Free(graph->nodes[i].args);
        PyMem_Free(graph->nodes[i].kernel.arguments);
    }
    PyMem_Free(graph->nodes);
    Py_TYPE(self)->tp_free(self);
}

static PyMemberDef launch_graph_members[] = {
    {"error", T_OBJECT, offsetof(LaunchGraph, error), READONLY, "Why it can't be launched any more, or None."},
    {"launches", T_LONGLONG, offsetof(LaunchGraph, launches), READONLY, "How often it was launched."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject LaunchGraph_Type = {
    TYPE_OF(LaunchGraph),
    .tp_doc = "LaunchGraph(graph, nodes, keeps=False): a CUDA graph, and those of its nodes that are kernels of ours. "
        "Where it keeps results in memory of its own, it is launched on one stream only.",
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = launch_graph_new,
    .tp_dealloc = launch_graph_dealloc,
    .tp_members = launch_graph_members,
};
