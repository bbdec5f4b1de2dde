/* A CUDA graph of what is launched on a stream between two moments, by the driver itself: torch's own class would also
 * put the device's generator into a state that other threads' random numbers fail in, and a capture that fails would
 * leave that, and the allocator, as they were while capturing. */
#include "plan/plan.h"
#include "torch/cuda_driver.h"

enum { ONLY_THIS_THREAD = 1, FREE_AT_LAUNCH = 1 };

/* Gives the driver's error. What was captured is given up unless it is a whole graph. */
static int end_capture(CudaGraph *graph)
{
    void *before, *captured = NULL;
    int error = cuda_enter(graph->context, &before);
    if (error)
        return error;
    if (graph->stream_captured)
        error = fj_cuda.capture_end(graph->stream, &captured);
    graph->stream_captured = 0;
    graph->captured = error ? NULL : captured;
    cuda_leave(graph->context, before);
    return error;
}

static void destroy(CudaGraph *graph)
{
    void *before, *executable = graph->executable, *captured = graph->captured;
    graph->executable = graph->captured = NULL;
    if ((executable || captured) && cuda_enter(graph->context, &before) == CUDA_DONE) {
        if (executable)
            fj_cuda.executable_destroy(executable);
        if (captured)
            fj_cuda.graph_destroy(captured);
        cuda_leave(graph->context, before);
    }
}

static PyObject *cuda_graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "device_index", NULL};
    unsigned long long stream;
    int device_index;
    void *context, *before;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Ki:CudaGraph", names, &stream, &device_index)
        || cuda_graphs_load() < 0 || cuda_context(device_index, &context) < 0)
        return NULL;
    CudaGraph *graph = (CudaGraph *)type->tp_alloc(type, 0);
    if (graph == NULL)
        return NULL;
    graph->stream = (void *)(uintptr_t)stream;
    graph->context = context;
    graph->device_index = device_index;
    int error = cuda_enter(context, &before);
    if (!error) {
        error = fj_cuda.capture_begin(graph->stream, ONLY_THIS_THREAD);
        cuda_leave(context, before);
    }
    graph->stream_captured = !error;
    if (error) {
        cuda_raise(error, "beginning to capture a CUDA graph", NULL);
        Py_CLEAR(graph);
    }
    return (PyObject *)graph;
}

static PyObject *cuda_graph_end(PyObject *self, PyObject *unused)
{
    (void)unused;
    CudaGraph *graph = (CudaGraph *)self;
    void *before;
    if (!graph->stream_captured) {
        PyErr_SetString(PyExc_RuntimeError, "nothing is being captured");
        return NULL;
    }
    int error;
    Py_BEGIN_ALLOW_THREADS
    error = end_capture(graph);
    if (!error && (error = cuda_enter(graph->context, &before)) == CUDA_DONE) {
        error = fj_cuda.instantiate(&graph->executable, graph->captured, FREE_AT_LAUNCH);
        if (error)
            graph->executable = NULL;
        cuda_leave(graph->context, before);
    }
    Py_END_ALLOW_THREADS
    if (error) {
        destroy(graph);
        cuda_raise(error, "capturing a CUDA graph", NULL);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *cuda_graph_abandon(PyObject *self, PyObject *unused)
{
    (void)unused;
    end_capture((CudaGraph *)self);       /* which says that the capture failed, if it did */
    destroy((CudaGraph *)self);
    Py_RETURN_NONE;
}

static void cuda_graph_dealloc(PyObject *self)
{
    CudaGraph *graph = (CudaGraph *)self;
    if (graph->weak)
        PyObject_ClearWeakRefs(self);
    if (graph->stream_captured)
        end_capture(graph);
    destroy(graph);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef cuda_graph_methods[] = {
    {"end", cuda_graph_end, METH_NOARGS, "Stop capturing, and make what was captured a graph that can be launched."},
    {"abandon", cuda_graph_abandon, METH_NOARGS, "Stop capturing, if that is under way; there is no graph then."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject CudaGraph_Type = {
    TYPE_OF(CudaGraph),
    .tp_doc = "CudaGraph(stream, device_index): captures what this thread launches on a stream from now on.",
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = cuda_graph_new,
    .tp_dealloc = cuda_graph_dealloc,
    .tp_weaklistoffset = offsetof(CudaGraph, weak),
    .tp_methods = cuda_graph_methods,
};
