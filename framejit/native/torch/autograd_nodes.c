/* NodeWatch: whether nodes of autograd are as they were: nobody has put a hook on one, or asked for the gradient of what
 * it gave. Torch keeps hooks in words of the node that nothing else changes. Which words these are is measured in each
 * process on known nodes (backends/fuse/training/node_watch.py); what torch calls them need not be known.
 *
 * A watch holds no nodes: it may be asked only while a node that comes behind them all in a backward is alive, for that
 * one holds them. */
#include "torch/tensor_spec.h"
#include "torch/torch_symbols.h"
#include <malloc.h>

enum { WORD = sizeof(void *), MAX_WORDS = 64, MAX_WATCHED = 24, MAX_CHAIN = 32 };

/* torch::autograd::impl::grad_fn_unsafe: the node that a tensor came out of, or NULL */
static char *(*grad_fn_of)(const void *tensor);
static int n_watched;
static uint16_t watched_fields[MAX_WATCHED];
static Py_ssize_t edges_field = -1;       /* where the nodes that this one hands gradients to stand: begin, end, capacity */

typedef struct {
    PyObject_VAR_HEAD
    int is_complete;
    struct { char *node; uintptr_t words[MAX_WATCHED]; } seen[];
} NodeWatch;

static char *node_of(PyObject *tensor)
{
    static unsigned looked;
    if (FJ_UNLIKELY(looked != fj_symbols_generation)) {
        grad_fn_of = (char *(*)(const void *))torch_symbol("_ZN5torch8autograd4impl14grad_fn_unsafeERKN2at6TensorE");
        looked = fj_symbols_generation;
    }
    if (fj_torch.impl < 0 || grad_fn_of == NULL || !PyObject_TypeCheck(tensor, fj_torch.tensor_type))
        return NULL;
    return grad_fn_of(HANDLE(tensor));
}

/* The first node that this one hands gradients to, or NULL. */
static char *behind(char *node)
{
    char **edges = FIELD(node, char **, edges_field);
    return edges == NULL || edges == FIELD(node, char **, edges_field + WORD) ? NULL : edges[0];
}

static PyObject *node_memory(PyObject *module, PyObject *tensor)
{
    (void)module;
    char *node = node_of(tensor);
    if (node == NULL)
        Py_RETURN_NONE;
    size_t size = malloc_usable_size(node);
    return PyBytes_FromStringAndSize(node, (Py_ssize_t)(size < MAX_WORDS * WORD ? size / WORD * WORD : MAX_WORDS * WORD));
}

/* Where nodes keep their edges: there lies the only node that the outer tensor's hands gradients to. */
static Py_ssize_t found_edges(char *outer, char *inner)
{
    size_t size = malloc_usable_size(outer);
    Py_ssize_t n = (Py_ssize_t)(size < MAX_WORDS * WORD ? size / WORD : MAX_WORDS);
    for (Py_ssize_t i = 1; i + 2 < n; i++) {
        uintptr_t begin = FIELD(outer, uintptr_t, i * WORD), end = FIELD(outer, uintptr_t, (i + 1) * WORD),
            capacity = FIELD(outer, uintptr_t, (i + 2) * WORD);
        /* an edge is a pointer, of one or two words, and a number */
        int is_one_edge = end - begin == 2 * WORD || end - begin == 3 * WORD;
        int is_memory = begin >= 1 << 16 && begin % WORD == 0 && capacity >= end && capacity - begin < 1 << 12;
        if (is_one_edge && is_memory && *(char **)begin == inner)
            return i * WORD;
    }
    return -1;
}

static PyObject *setup_nodes(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *outer, *inner, *fields;
    if (!PyArg_ParseTuple(args, "OOO!:setup_nodes", &outer, &inner, &PyTuple_Type, &fields))
        return NULL;
    n_watched = 0;
    edges_field = -1;
    char *of_outer = node_of(outer), *of_inner = node_of(inner);
    Py_ssize_t n = PyTuple_GET_SIZE(fields);
    if (of_outer == NULL || of_inner == NULL || n > MAX_WATCHED)
        Py_RETURN_FALSE;
    for (Py_ssize_t i = 0; i < n; i++) {
        long field = PyLong_AsLong(PyTuple_GET_ITEM(fields, i));
        if (field < 0 || field >= MAX_WORDS * WORD || field % WORD) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "setup_nodes: fields are offsets of words");
            return NULL;
        }
        watched_fields[i] = (uint16_t)field;
    }
    edges_field = found_edges(of_outer, of_inner);
    if (edges_field < 0)
        Py_RETURN_FALSE;
    n_watched = (int)n;
    Py_RETURN_TRUE;
}

static void look(char *node, uintptr_t *words, int n)
{
    for (int i = 0; i < n; i++)
        words[i] = FIELD(node, uintptr_t, watched_fields[i]);
}

/* Adds a view's node with what lies behind it, up to one that is known; 0 where that is too much. */
static int add_view(NodeWatch *self, Py_ssize_t *n, Py_ssize_t most, char *node)
{
    for (int steps = 0; node != NULL; steps++, node = behind(node)) {
        for (Py_ssize_t i = 0; i < *n; i++)
            if (self->seen[i].node == node)
                return 1;
        if (steps == MAX_CHAIN || *n == most)
            return 0;
        self->seen[*n].node = node;
        look(node, self->seen[(*n)++].words, n_watched);
    }
    return 1;
}

static PyObject *node_watch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"tensors", "views", NULL};
    PyObject *tensors, *views;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!:NodeWatch", names, &PyList_Type, &tensors, &PyList_Type, &views))
        return NULL;
    if (n_watched == 0) {
        PyErr_SetString(PyExc_RuntimeError, "NodeWatch: setup_nodes has found nothing to watch");
        return NULL;
    }
    Py_ssize_t n_tensors = PyList_GET_SIZE(tensors), n_views = PyList_GET_SIZE(views), n = 0;
    Py_ssize_t most = n_tensors + n_views * MAX_CHAIN;
    NodeWatch *self = (NodeWatch *)type->tp_alloc(type, most);
    if (self == NULL)
        return NULL;
    self->is_complete = 1;
    for (Py_ssize_t i = 0; i < n_tensors; i++) {
        char *node = node_of(PyList_GET_ITEM(tensors, i));
        if (node != NULL) {
            self->seen[n].node = node;
            look(node, self->seen[n++].words, n_watched);
        }
    }
    for (Py_ssize_t i = 0; i < n_views && self->is_complete; i++)
        self->is_complete = add_view(self, &n, most, node_of(PyList_GET_ITEM(views, i)));
    Py_SET_SIZE(self, n);
    return (PyObject *)self;
}

static PyObject *unchanged(PyObject *object, PyObject *unused)
{
    (void)unused;
    NodeWatch *self = (NodeWatch *)object;
    uintptr_t now[MAX_WATCHED];
    int same = self->is_complete;
    for (Py_ssize_t i = 0; i < Py_SIZE(self) && same; i++) {
        look(self->seen[i].node, now, n_watched);
        same = memcmp(now, self->seen[i].words, n_watched * sizeof(uintptr_t)) == 0;
    }
    return PyBool_FromLong(same);
}

static PyMethodDef node_watch_methods[] = {
    {"unchanged", unchanged, METH_NOARGS,
     "unchanged() -> bool: whether no hook was put on any of the nodes since; False where there were too many to watch. "
     "To be called only while a node is alive that holds them."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject NodeWatchType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "framejit._native.NodeWatch",
    .tp_basicsize = sizeof(NodeWatch),
    .tp_itemsize = sizeof(((NodeWatch *)0)->seen[0]),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "NodeWatch(tensors, views): the nodes of autograd that tensors came out of, and for views those behind "
              "them, too, as they are now.",
    .tp_new = node_watch_new,
    .tp_methods = node_watch_methods,
};

static PyMethodDef methods[] = {
    {"node_memory", node_memory, METH_O,
     "node_memory(tensor) -> the memory of the node of autograd that it came out of, as bytes; None where that is not "
     "known."},
    {"setup_nodes", setup_nodes, METH_VARARGS,
     "setup_nodes(outer, inner, fields) -> bool: have these words of nodes watched, given as offsets in bytes. The "
     "node of `outer` hands gradients to that of `inner` only. Whether all that a watch needs was found."},
    {NULL, NULL, 0, NULL},
};

int autograd_nodes_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods) < 0 || PyModule_AddType(module, &NodeWatchType) < 0 ? -1 : 0;
}
