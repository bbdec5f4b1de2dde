/* The making of a memo: each accessor of a guard tree, with the words that vouch for the value it reaches. */
#include "guards/guard_memo_builder.h"

static int read_place(MemoBuilder *b, PyObject *const *where, Level *out)
{
    if (*where == NULL)
        return RESIDUAL;
    memo_pin_word(b, where);
    out->value = *where;
    return VOUCHED;
}

static int read_item(MemoBuilder *b, const Node *node, const Node *parent_node, Level *parent, Level *out)
{
    PyObject *value = parent->value, *const *items;
    int is_list = PyList_CheckExact(value);
    if (!is_list && !PyTuple_CheckExact(value))
        return RESIDUAL;
    Py_ssize_t n = Py_SIZE(value), i = node->index + (node->index < 0 ? n : 0);
    if (i < 0 || i >= n)
        return ABANDON;
    items = is_list ? ((PyListObject *)value)->ob_item : ((PyTupleObject *)value)->ob_item;
    if (!is_list && parent->known) {
        out->value = items[i];
        out->known = 1;
        return VOUCHED;
    }
    if (!parent->list_pinned) {
        if (memo_pin_type(b, parent, parent_node) != VOUCHED)
            return RESIDUAL;
        memo_pin_word(b, &((PyVarObject *)value)->ob_size);
        if (is_list)
            memo_pin_word(b, &((PyListObject *)value)->ob_item);
        parent->list_pinned = 1;
    }
    return read_place(b, &items[i], out);
}

static int read_cell_of(MemoBuilder *b, const Node *node, PyObject **cell)
{
    PyFunctionObject *fn = b->frame->fn;
    if (fn == NULL || fn->func_closure == NULL || node->index < 0 || node->index >= PyTuple_GET_SIZE(fn->func_closure))
        return ABANDON;
    b->memo->fn = fn;
    memo_pin_word(b, &fn->func_closure);
    memo_pin_word(b, &((PyVarObject *)fn->func_closure)->ob_size);
    *cell = PyTuple_GET_ITEM(fn->func_closure, node->index);
    memo_pin_word(b, &PyTuple_GET_ITEM(fn->func_closure, node->index));
    return VOUCHED;
}

static int read_function_part(MemoBuilder *b, PyFunctionObject *fn, PyObject *name, Level *out)
{
    PyObject **where = is_name(name, "__globals__") ? &fn->func_globals
        : is_name(name, "__code__") ? &fn->func_code
        : is_name(name, "__closure__") ? &fn->func_closure
        : is_name(name, "__defaults__") ? &fn->func_defaults
        : is_name(name, "__kwdefaults__") ? &fn->func_kwdefaults
        : is_name(name, "__name__") ? &fn->func_name
        : is_name(name, "__qualname__") ? &fn->func_qualname : NULL;
    if (where == NULL)
        return RESIDUAL;
    memo_pin_word(b, where);
    out->value = *where ? *where : Py_None;
    return VOUCHED;
}

/* A slot of a class, or what a built-in class keeps in a place of its own. */
static int read_member(MemoBuilder *b, const Node *node, PyObject *parent, Level *out)
{
    PyTypeObject *type = Py_TYPE(parent);
    PyObject *found = type->tp_getattro == PyObject_GenericGetAttr ? _PyType_Lookup(type, node->key) : NULL;
    if (found == NULL || !Py_IS_TYPE(found, &PyMemberDescr_Type))
        return RESIDUAL;
    PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
    if (member->type != T_OBJECT && member->type != T_OBJECT_EX)
        return RESIDUAL;
    Level holder = {.value = (PyObject *)type, .known = 1};
    if (memo_pin_type_contents(b, &holder) != VOUCHED)
        return RESIDUAL;
    return read_place(b, (PyObject **)((char *)parent + member->offset), out);
}

static int read_attribute(MemoBuilder *b, const Node *node, const Node *parent_node, Level *parent, Level *out)
{
    PyObject *obj = parent->value;
    if (memo_pin_type(b, parent, parent_node) != VOUCHED)
        return RESIDUAL;
    if (PyType_Check(obj) && is_name(node->key, "__mro__")) {
        out->value = ((PyTypeObject *)obj)->tp_mro;
        out->known = 1;
        return memo_pin_type_contents(b, parent);
    }
    /* what a metaclass says of its classes' names is its own affair; those of built-in classes are made when asked */
    if (PyType_Check(obj) && Py_IS_TYPE(obj, &PyType_Type) && is_name(node->key, "__name__")
        && PyType_HasFeature((PyTypeObject *)obj, Py_TPFLAGS_HEAPTYPE))
        return read_place(b, &((PyHeapTypeObject *)obj)->ht_name, out);
    if (PyFunction_Check(obj))
        return read_function_part(b, (PyFunctionObject *)obj, node->key, out);
    if (PyModule_CheckExact(obj) && _PyType_Lookup(&PyModule_Type, node->key) == NULL)
        return memo_read_key_behind(b, node, instance_dict_slot(obj), out);
    return read_member(b, node, obj, out);
}

int memo_read_node(MemoBuilder *b, const Node *node, const Node *parent_node, Level *parent, int has_children,
    Level *out)
{
    GuardMemo *memo = b->memo;
    PyFunctionObject *fn = b->frame->fn;
    PyObject *cell;
    switch (node->accessor) {
    case A_ARG:
        /* one that is only looked at, and likely another at each call */
        if (!has_children || node->index < 0 || node->index >= b->frame->nargs)
            return RESIDUAL;
        if (memo->n_args == b->frame->nargs)
            return RESIDUAL;              /* a tree that reads an argument twice */
        out->value = b->frame->args[node->index];
        memo->args[memo->n_args++] = (PinnedArg){node->index, out->value};
        return VOUCHED;
    case A_FUNC:
        if (fn == NULL)
            return ABANDON;
        memo->fn = fn;
        out->value = (PyObject *)fn;
        out->type_pinned = 1;
        return VOUCHED;
    case A_CLOSURE_CELL:
        if (read_cell_of(b, node, &cell) != VOUCHED)
            return ABANDON;
        out->value = cell;
        return VOUCHED;
    case A_GLOBAL: case A_BUILTIN:
        if (fn == NULL)
            return ABANDON;
        memo->fn = fn;
        return memo_read_key_behind(b, node, node->accessor == A_GLOBAL ? &fn->func_globals : &fn->func_builtins, out);
    case A_CONST:
        out->value = node->weak ? weak_target(node->key) : node->key;
        out->known = 1;
        if (node->weak)
            memo_pin_word(b, &((PyWeakReference *)node->key)->wr_object);
        return out->value ? VOUCHED : ABANDON;
    case A_STATE:
        out->value = Py_None;
        out->known = 1;
        return VOUCHED;
    case A_KEY:
        if (!PyDict_Check(parent->value))
            return RESIDUAL;
        if (parent->dict_mode == DICT_UNREAD && parent_node->accessor != A_DICT
            && memo_pin_type(b, parent, parent_node) != VOUCHED)
            return RESIDUAL;
        return memo_read_key(b, node, parent, out);
    case A_DICT: {
        PyObject **slot = instance_dict_slot(parent->value);
        if (slot == NULL || instance_dict_if_ready(parent->value) == NULL
            || memo_pin_type(b, parent, parent_node) != VOUCHED)
            return RESIDUAL;
        return read_place(b, slot, out);
    }
    case A_INDEX:
        return read_item(b, node, parent_node, parent, out);
    case A_TYPE_LOOKUP:
        if (!PyType_Check(parent->value) || (!parent->known && memo_pin_type(b, parent, parent_node) != VOUCHED))
            return RESIDUAL;
        out->value = _PyType_Lookup((PyTypeObject *)parent->value, node->key);
        out->known = 1;
        return out->value ? memo_pin_type_contents(b, parent) : ABANDON;
    case A_CELL:
        if (!PyCell_Check(parent->value) || memo_pin_type(b, parent, parent_node) != VOUCHED)
            return RESIDUAL;
        return read_place(b, &((PyCellObject *)parent->value)->ob_ref, out);
    case A_ATTR:
        return read_attribute(b, node, parent_node, parent, out);
    default:
        return RESIDUAL;
    }
}
