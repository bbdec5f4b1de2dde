/* GuardTree, the Python type. guard_compile.c makes its contents, guard_eval.c evaluates them. */
#include "guards/guard_tree.h"

static PyObject *tree_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"roots", "n_records", NULL};
    PyObject *roots;
    int n_records = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|i:GuardTree", names, &PyList_Type, &roots, &n_records))
        return NULL;
    if (n_records < 0) {
        PyErr_SetString(PyExc_ValueError, "n_records is negative");
        return NULL;
    }
    GuardTree *tree = (GuardTree *)type->tp_alloc(type, 0);
    if (tree == NULL)
        return NULL;
    tree->n_records = n_records;
    if (guard_tree_compile(tree, roots) < 0) {
        Py_DECREF(tree);
        return NULL;
    }
    return (PyObject *)tree;
}

static int tree_traverse(PyObject *self, visitproc visit, void *arg)
{
    GuardTree *tree = (GuardTree *)self;
    for (int i = 0; i < tree->n_nodes; i++) {
        Py_VISIT(tree->nodes[i].key);
        if (node_has_operation(&tree->nodes[i]))
            Py_VISIT(tree->nodes[i].operation);
    }
    for (int i = 0; i < tree->n_checks; i++) {
        Check *check = &tree->checks[i];
        if (check_has_payload(check))
            Py_VISIT(check->payload);
        else if (check->kind == C_TENSOR && check->tensor) {
            int result = tensor_spec_traverse(check->tensor, visit, arg);
            if (result)
                return result;
        }
    }
    return 0;
}

/* No tp_clear: an evaluation in another thread may be using the arrays, and every cycle through a tree passes an Entry,
 * which has one. */
static void tree_dealloc(PyObject *self)
{
    GuardTree *tree = (GuardTree *)self;
    PyObject_GC_UnTrack(self);
    for (int i = 0; i < tree->n_nodes; i++) {
        Py_XDECREF(tree->nodes[i].key);
        if (node_has_operation(&tree->nodes[i]))
            Py_XDECREF(tree->nodes[i].operation);
    }
    for (int i = 0; i < tree->n_checks; i++) {
        Check *check = &tree->checks[i];
        if (check_has_payload(check))
            Py_XDECREF(check->payload);
        else if (check->kind == C_TENSOR && check->tensor)
            tensor_spec_free(check->tensor);
        else if (check->kind == C_SIZES && check->sizes)
            size_check_free(check->sizes);
        else if (check->kind == C_DISTINCT && check->distinct) {
            PyMem_Free(check->distinct->last);
            PyMem_Free(check->distinct);
        }
    }
    guard_memos_free(tree);
    PyMem_Free(tree->plain_args);
    PyMem_Free(tree->nodes);
    PyMem_Free(tree->checks);
    Py_TYPE(self)->tp_free(self);
}

int guard_tree_expired(GuardTree *tree)
{
    for (int i = 0; i < tree->n_checks; i++)
        if (tree->checks[i].weak && weak_target(tree->checks[i].payload) == NULL)
            return 1;
    for (int i = 0; i < tree->n_nodes; i++)
        if (tree->nodes[i].weak && weak_target(tree->nodes[i].key) == NULL)
            return 1;
    return 0;
}

static int parse_frame(PyObject *args, const char *format, PyObject **flat, PyObject **fn)
{
    if (!PyArg_ParseTuple(args, format, &PyTuple_Type, flat, fn))
        return -1;
    if (*fn != Py_None && !PyFunction_Check(*fn)) {
        PyErr_SetString(PyExc_TypeError, "the second argument is a Python function");
        return -1;
    }
    if (*fn == Py_None)
        *fn = NULL;
    return 0;
}

static PyObject *tree_check(PyObject *self, PyObject *args)
{
    PyObject *flat, *fn;
    if (parse_frame(args, "O!O:check", &flat, &fn) < 0)
        return NULL;
    return PyBool_FromLong(guard_tree_passes((GuardTree *)self, ((PyTupleObject *)flat)->ob_item,
        PyTuple_GET_SIZE(flat), fn, NULL));
}

static PyObject *tree_explain(PyObject *self, PyObject *args)
{
    PyObject *flat, *fn;
    if (parse_frame(args, "O!O:explain", &flat, &fn) < 0)
        return NULL;
    GuardFailure failure = {-1, 0, NULL, NULL};
    if (guard_tree_passes((GuardTree *)self, ((PyTupleObject *)flat)->ob_item, PyTuple_GET_SIZE(flat), fn, &failure))
        Py_RETURN_NONE;
    PyObject *value = failure.value ? failure.value : Py_NewRef(Py_None);
    return Py_BuildValue("(iNO)", failure.guard_id, value, failure.failed_access ? Py_True : Py_False);
}

static PyObject *tree_other_numbers(PyObject *self, PyObject *args)
{
    PyObject *flat, *fn;
    if (parse_frame(args, "O!O:other_numbers", &flat, &fn) < 0)
        return NULL;
    GuardFailure failure = {-1, 0, NULL, PyList_New(0)};
    if (failure.numbers == NULL)
        return NULL;
    guard_tree_passes((GuardTree *)self, ((PyTupleObject *)flat)->ob_item, PyTuple_GET_SIZE(flat), fn, &failure);
    Py_XDECREF(failure.value);
    return failure.numbers;
}

static PyObject *tree_get_size(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLong(((GuardTree *)self)->n_checks);
}

static PyObject *tree_get_expired(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(guard_tree_expired((GuardTree *)self));
}

static PyObject *tree_get_memos(PyObject *self, void *closure)
{
    (void)closure;
    return guard_memos_hits((GuardTree *)self);
}

static PyMethodDef tree_methods[] = {
    {"check", tree_check, METH_VARARGS, "check(flat_args, fn) -> bool: whether every guard holds."},
    {"explain", tree_explain, METH_VARARGS,
     "explain(flat_args, fn) -> None if every guard holds, else (guard_id, value or None, failed_access) of the first "
     "that does not."},
    {"other_numbers", tree_other_numbers, METH_VARARGS,
     "other_numbers(flat_args, fn) -> the ids of the guards that compare a number with another one now, of those before "
     "the first of any other kind that does not hold."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef tree_getset[] = {
    {"size", tree_get_size, NULL, "Number of checks.", NULL},
    {"memos", tree_get_memos, NULL,
     "How often each short proof of the guards has served, one for each set of objects they lately held for.", NULL},
    {"expired", tree_get_expired, NULL, "True when an object that a guard compares with no longer exists.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject GuardTree_Type = {
    TYPE_OF(GuardTree),
    .tp_doc = "GuardTree(roots, n_records=0): assumptions about a frame, evaluated natively.",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = tree_new,
    .tp_dealloc = tree_dealloc,
    .tp_traverse = tree_traverse,
    .tp_methods = tree_methods,
    .tp_getset = tree_getset,
};

int guard_tree_init(PyObject *module)
{
    if (PyModule_AddType(module, &GuardTree_Type) < 0)
        return -1;
#define ADD_CONSTANT(name) if (PyModule_AddIntConstant(module, "A_" #name, A_##name) < 0) return -1;
    ACCESSORS(ADD_CONSTANT)
#undef ADD_CONSTANT
#define ADD_CONSTANT(name) if (PyModule_AddIntConstant(module, "C_" #name, C_##name) < 0) return -1;
    CHECKS(ADD_CONSTANT)
#undef ADD_CONSTANT
    return 0;
}
