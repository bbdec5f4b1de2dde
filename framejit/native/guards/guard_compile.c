/* From the nested description of a guard tree to the flat form of guard_tree.h. */
#include "guards/guard_tree.h"

typedef struct { int nodes, checks, depth; } TreeSize;
enum { WORTH_A_MEMO = 12 };              /* nodes */

/* ---- first pass: validate the shape, count ---- */
static int node_parts(PyObject *node, long *accessor, PyObject **key, PyObject **checks, PyObject **children,
    int *guard_id)
{
    if (!PyTuple_Check(node)) {
        PyErr_SetString(PyExc_TypeError, "a guard node is a tuple (accessor, key, checks, children, guard_id)");
        return -1;
    }
    if (!PyArg_ParseTuple(node, "lOO!O!i;a guard node is (accessor, key, checks, children, guard_id)",
                          accessor, key, &PyList_Type, checks, &PyList_Type, children, guard_id))
        return -1;
    if (*accessor < 0 || *accessor >= A_COUNT) {
        PyErr_Format(PyExc_ValueError, "unknown accessor %ld", *accessor);
        return -1;
    }
    return 0;
}

static int measure(PyObject *nodes, int depth, TreeSize *size)
{
    if (depth > 1000) {
        PyErr_SetString(PyExc_ValueError, "guard tree is too deep");
        return -1;
    }
    if (PyList_GET_SIZE(nodes) > 0 && depth + 1 > size->depth)
        size->depth = depth + 1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(nodes); i++) {
        long accessor;
        int guard_id;
        PyObject *key, *checks, *children;
        if (node_parts(PyList_GET_ITEM(nodes, i), &accessor, &key, &checks, &children, &guard_id) < 0)
            return -1;
        size->nodes++;
        size->checks += (int)PyList_GET_SIZE(checks);
        if (measure(children, depth + 1, size) < 0)
            return -1;
    }
    return 0;
}

/* Compared objects are the user's: hold them weakly where they allow it, so that an entry never keeps a module or a
 * closure alive. */
static int hold_weakly(PyObject *obj, PyObject **held, uint8_t *weak)
{
    if (PyType_SUPPORTS_WEAKREFS(Py_TYPE(obj))) {
        *held = PyWeakref_NewRef(obj, NULL);
        *weak = 1;
        return *held ? 0 : -1;
    }
    *held = Py_NewRef(obj);
    *weak = 0;
    return 0;
}

int key_is_plain(PyObject *key)
{
    return PyUnicode_CheckExact(key) || PyLong_CheckExact(key) || PyBytes_CheckExact(key) || PyBool_Check(key)
        || key == Py_None;
}

int guard_parse_slot(PyObject *obj, Py_ssize_t n_records, Py_ssize_t *slot)
{
    *slot = PyLong_AsSsize_t(obj);
    if (*slot == -1 && PyErr_Occurred())
        return -1;
    if (*slot < 0 || *slot >= n_records) {
        PyErr_Format(PyExc_ValueError, "record slot %zd is not below n_records (%zd)", *slot, n_records);
        return -1;
    }
    return 0;
}

static int compile_distinct(GuardTree *tree, Check *check, PyObject *slots)
{
    Py_ssize_t n = PyTuple_GET_SIZE(slots);
    Distinct *distinct = PyMem_Calloc(1, sizeof(Distinct) + n * sizeof(int));
    check->distinct = distinct;
    if (distinct == NULL || (distinct->last = PyMem_Calloc(n + 1, sizeof(PyObject *))) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    distinct->n = n;
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_ssize_t slot;
        if (guard_parse_slot(PyTuple_GET_ITEM(slots, i), tree->n_records, &slot) < 0)
            return -1;
        distinct->slots[i] = (int)slot;
    }
    return 0;
}

static int compile_holds(const GuardTree *tree, Check *check, PyObject *payload)
{
    PyObject *function, *slots;
    if (!PyTuple_Check(payload) || !PyArg_ParseTuple(payload, "OO!;C_HOLDS takes (function, record slots)",
                                                     &function, &PyTuple_Type, &slots) || !PyCallable_Check(function)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "C_HOLDS takes (function, record slots)");
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(slots); i++) {
        Py_ssize_t slot;
        if (guard_parse_slot(PyTuple_GET_ITEM(slots, i), tree->n_records, &slot) < 0)
            return -1;
    }
    check->payload = Py_NewRef(payload);
    return 0;
}

static int compile_check(GuardTree *tree, Check *check, PyObject *item)
{
    long kind;
    PyObject *payload;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "a check is a tuple (check, payload, guard_id)");
        return -1;
    }
    if (!PyArg_ParseTuple(item, "lOi;a check is (check, payload, guard_id)", &kind, &payload, &check->guard_id))
        return -1;
    check->kind = (uint8_t)kind;
    check->version = NO_VERSION;
    check->record = fj_no_record;
    switch (kind) {
    case C_TYPE:
        if (!PyType_Check(payload)) {
            PyErr_SetString(PyExc_TypeError, "C_TYPE takes a type");
            return -1;
        }
        check->payload = Py_NewRef(payload);
        return 0;
    case C_ID:
        return hold_weakly(payload, &check->payload, &check->weak);
    case C_EQUALS:
        check->payload = Py_NewRef(payload);
        tree->runs_python |= !constant_is_plain(payload);
        return 0;
    case C_LEN:
        check->number = PyLong_AsSsize_t(payload);
        return check->number == -1 && PyErr_Occurred() ? -1 : 0;
    case C_KEYS:
        if (!PyTuple_Check(payload)) {
            PyErr_SetString(PyExc_TypeError, "C_KEYS takes a tuple");
            return -1;
        }
        check->payload = Py_NewRef(payload);
        check->plain_keys = 1;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(payload); i++)
            check->plain_keys &= key_is_plain(PyTuple_GET_ITEM(payload, i));
        tree->runs_python |= !check->plain_keys;
        return 0;
    case C_NO_KEY:
        check->payload = Py_NewRef(payload);
        check->plain_keys = (uint8_t)key_is_plain(payload);
        tree->runs_python |= !check->plain_keys;
        return PyObject_Hash(payload) == -1 ? -1 : 0;
    case C_NO_ATTR:
        if (!PyUnicode_Check(payload)) {
            PyErr_SetString(PyExc_TypeError, "an attribute check takes a name");
            return -1;
        }
        check->payload = Py_NewRef(payload);
        tree->runs_python = 1;
        return 0;
    case C_LACKS:
        if (!PyUnicode_CheckExact(payload)) {
            PyErr_SetString(PyExc_TypeError, "C_LACKS takes a name");
            return -1;
        }
        check->payload = Py_NewRef(payload);
        PyUnicode_InternInPlace(&check->payload);
        return 0;
    case C_TENSOR:
        check->tensor = tensor_spec_new(payload);
        if (check->tensor == NULL)
            return -1;
        tree->runs_python |= tensor_spec_runs_python(check->tensor);
        return 0;
    case C_RECORD:
        return guard_parse_slot(payload, tree->n_records, &check->number);
    case C_SAME:
        if (!PyTuple_Check(payload) || PyTuple_GET_SIZE(payload) != 2) {
            PyErr_SetString(PyExc_TypeError, "C_SAME takes a pair of record slots");
            return -1;
        }
        if (guard_parse_slot(PyTuple_GET_ITEM(payload, 0), tree->n_records, &check->number) < 0)
            return -1;
        return guard_parse_slot(PyTuple_GET_ITEM(payload, 1), tree->n_records, &check->other);
    case C_DISTINCT:
        if (!PyTuple_Check(payload)) {
            PyErr_SetString(PyExc_TypeError, "C_DISTINCT takes a tuple of record slots");
            return -1;
        }
        return compile_distinct(tree, check, payload);
    case C_HOLDS:
        tree->runs_python = 1;
        return compile_holds(tree, check, payload);
    case C_SIZES:
        check->sizes = size_check_new(payload, tree->n_records);
        return check->sizes ? 0 : -1;
    case C_VERSION:
        tree->runs_python |= version_check_runs_python();
        return version_check_parse(payload, &check->version, &check->number);
    case C_STATE:
        if (!Py_IS_TYPE(payload, &State_Type)) {
            PyErr_SetString(PyExc_TypeError, "C_STATE takes a State");
            return -1;
        }
        check->payload = Py_NewRef(payload);
        return 0;
    case C_PY:
        if (!PyCallable_Check(payload)) {
            PyErr_SetString(PyExc_TypeError, "C_PY takes a callable");
            return -1;
        }
        check->payload = Py_NewRef(payload);
        tree->runs_python = 1;
        return 0;
    case C_TRUTH:
        check->number = PyObject_IsTrue(payload);
        tree->runs_python = 1;
        return check->number < 0 ? -1 : 0;
    default:
        PyErr_Format(PyExc_ValueError, "unknown check %ld", kind);
        return -1;
    }
}

static int compile_operator(Node *node, PyObject *opname)
{
    PyObject *operators = PyImport_ImportModule("operator");
    if (operators == NULL)
        return -1;
    node->operation = PyObject_GetAttr(operators, opname);
    Py_DECREF(operators);
    return node->operation ? 0 : -1;
}

static int compile_access(GuardTree *tree, Node *node, PyObject *key)
{
    switch (node->accessor) {
    case A_ARG: case A_CLOSURE_CELL: case A_INDEX: case A_DICT_KEY_AT: case A_DICT_VALUE_AT:
        node->index = PyLong_AsSsize_t(key);
        return node->index == -1 && PyErr_Occurred() ? -1 : 0;
    case A_FUNC: case A_DICT: case A_CELL: case A_STATE:
        return 0;
    case A_GLOBAL: case A_BUILTIN: case A_ATTR: case A_TYPE_LOOKUP:
        if (!PyUnicode_CheckExact(key)) {
            PyErr_SetString(PyExc_TypeError, "this accessor takes a name");
            return -1;
        }
        node->key = Py_NewRef(key);
        PyUnicode_InternInPlace(&node->key);
        return 0;
    case A_CONST:
        return hold_weakly(key, &node->key, &node->weak);
    case A_KEY:
        node->key = Py_NewRef(key);
        if (PyUnicode_CheckExact(key))
            PyUnicode_InternInPlace(&node->key);
        tree->runs_python |= !key_is_plain(key);
        return PyObject_Hash(key) == -1 ? -1 : 0;
    case A_GETITEM:
        node->key = Py_NewRef(key);
        tree->runs_python = 1;
        return 0;
    case A_BINOP: case A_RBINOP:
        if (!PyTuple_Check(key) || PyTuple_GET_SIZE(key) != 2 || !PyUnicode_Check(PyTuple_GET_ITEM(key, 0))) {
            PyErr_SetString(PyExc_TypeError, "a binary operation takes (name, constant)");
            return -1;
        }
        tree->runs_python = 1;
        node->key = Py_NewRef(PyTuple_GET_ITEM(key, 1));
        return compile_operator(node, PyTuple_GET_ITEM(key, 0));
    case A_CALL:
        if (!PyCallable_Check(key)) {
            PyErr_SetString(PyExc_TypeError, "A_CALL takes a callable");
            return -1;
        }
        tree->runs_python = 1;
        node->key = Py_NewRef(key);
        return 0;
    default:
        Py_UNREACHABLE();
    }
}

/* A check whose outcome can change only if another object takes the value's place. */
int check_is_settled(const Check *check)
{
    switch (check->kind) {
    case C_ID:
        return 1;
    case C_TYPE: {
        /* __class__ can be assigned between heap types and between module types only */
        PyTypeObject *type = (PyTypeObject *)check->payload;
        return !(type->tp_flags & Py_TPFLAGS_HEAPTYPE) && !PyType_IsSubtype(type, &PyModule_Type);
    }
    case C_EQUALS:
        return constant_is_plain(check->payload);
    default:
        return 0;
    }
}

/* A key's __hash__ is user code and may have changed the lists since they were measured. */
static int grew_while_read(void)
{
    PyErr_SetString(PyExc_RuntimeError, "guard tree description changed while it was read");
    return -1;
}

static int compile_nodes(GuardTree *tree, PyObject *nodes, int depth)
{
    int run_start = -1;                   /* first node of the present run of settled siblings */
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(nodes); i++) {
        long accessor;
        PyObject *key, *checks, *children;
        Node *node = &tree->nodes[tree->n_nodes];
        int position = tree->n_nodes;
        if (position >= tree->room_nodes || depth >= tree->max_depth)
            return grew_while_read();
        tree->n_nodes++;
        if (node_parts(PyList_GET_ITEM(nodes, i), &accessor, &key, &checks, &children, &node->guard_id) < 0)
            return -1;
        node->accessor = (uint8_t)accessor;
        node->version = node->passed = NO_VERSION;
        node->record = fj_no_record;
        node->depth = depth;
        node->first_check = tree->n_checks;
        if (compile_access(tree, node, key) < 0)
            return -1;
        int settled = node->accessor == A_KEY && key_is_plain(key) && PyList_GET_SIZE(children) == 0;
        for (Py_ssize_t c = 0; c < PyList_GET_SIZE(checks); c++) {
            if (tree->n_checks >= tree->room_checks)
                return grew_while_read();
            Check *check = &tree->checks[tree->n_checks++];
            node->n_checks++;
            if (compile_check(tree, check, PyList_GET_ITEM(checks, c)) < 0)
                return -1;
            settled &= check_is_settled(check);
        }
        node->settled = (uint8_t)settled;
        if (!settled)
            run_start = -1;
        else if (run_start < 0)
            run_start = position;
        if (run_start >= 0)
            tree->nodes[run_start].group_end = position + 1;
        if (compile_nodes(tree, children, depth + 1) < 0)
            return -1;
    }
    return 0;
}

/* Tells each size check what the tensors it relates have passed. */
static int attach_size_checks(GuardTree *tree)
{
    const TensorSpec **specs = PyMem_Calloc(tree->n_records + 1, sizeof(TensorSpec *));
    if (specs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < tree->n_nodes; i++) {
        const Check *check = &tree->checks[tree->nodes[i].first_check], *end = check + tree->nodes[i].n_checks;
        const TensorSpec *spec = NULL;
        for (; check < end; check++) {
            if (check->kind == C_TENSOR)
                spec = check->tensor;
            else if (check->kind == C_RECORD)
                specs[check->number] = spec;
        }
    }
    for (int i = 0; i < tree->n_checks; i++)
        if (tree->checks[i].kind == C_SIZES) {
            size_check_attach(tree->checks[i].sizes, specs);
            tree->runs_python |= size_check_runs_python(tree->checks[i].sizes);
        }
    PyMem_Free(specs);
    return 0;
}

/* Fills an empty tree. What is there when it fails is for the tree's destructor. */
int guard_tree_compile(GuardTree *tree, PyObject *roots)
{
    TreeSize size = {0, 0, 0};
    if (measure(roots, 0, &size) < 0)
        return -1;
    tree->max_depth = size.depth;
    tree->room_nodes = size.nodes;
    tree->room_checks = size.checks;
    tree->nodes = PyMem_Calloc(size.nodes + 1, sizeof(Node));
    tree->checks = PyMem_Calloc(size.checks + 1, sizeof(Check));
    if (tree->nodes == NULL || tree->checks == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (compile_nodes(tree, roots, 0) < 0 || attach_size_checks(tree) < 0)
        return -1;
    tree->memos.worthwhile = tree->n_nodes >= WORTH_A_MEMO;
    return guard_plain_collect(tree);
}
