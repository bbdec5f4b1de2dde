/* Evaluation of a compiled guard tree: one forward pass, no recursion.
 *
 * While no step can run Python code, nothing can be freed during the pass, so values are borrowed. As soon as one may,
 * every value is held. Some steps turn out to need that only when they meet an unusual value: the pass then starts
 * again in the holding manner. */
#include "guards/guard_tree.h"
#include "torch/tensor_spec.h"
#include <alloca.h>
#include <stdlib.h>

enum { MAX_STACK_RECORDS = 1024 };

/* ---- reading ---- */
static PyObject *lookup_split(Node *node, PyObject *dict)
{
    if (FJ_LIKELY(split_dict_has_at(dict, node->key, node->place)))
        return split_dict_value(dict, node->place);
    for (Py_ssize_t place = 0; place < split_dict_size(dict); place++)
        if (split_dict_has_at(dict, node->key, place)) {
            node->place = (uint8_t)place;
            return split_dict_value(dict, place);
        }
    return PyDict_GetItemWithError(dict, node->key);
}

static FJ_APART PyObject *lookup_anew(Node *node, PyObject *dict)
{
    const DictRecord *record = dict_record(dict);
    uint64_t version = record_version(record);
    PyObject *value = PyDict_GetItemWithError(dict, node->key);
    /* what a key of a program's own class equals may change while the dictionary does not */
    if (FJ_LIKELY(record != fj_no_record && dict_is_at(dict, record, version) && key_is_plain(node->key))) {
        node->cached = value;
        node->record = record;
        node->version = version;
    }
    return value;
}

static inline PyObject *lookup(Node *node, PyObject *dict)
{
    if (FJ_LIKELY(dict_is_at(dict, node->record, node->version)))
        return node->cached;
    return dict_is_split(dict) && fj_layout.dicts ? lookup_split(node, dict) : lookup_anew(node, dict);
}

static FJ_APART PyObject *read_namespace(Node *node, PyObject *namespace, PyObject **owned)
{
    if (FJ_LIKELY(PyDict_CheckExact(namespace)))
        return lookup(node, namespace);
    return *owned = PyObject_GetItem(namespace, node->key);
}

static FJ_APART PyObject *read_cell(Frame *frame, Py_ssize_t i)
{
    PyObject *closure = frame->fn ? frame->fn->func_closure : NULL;
    return closure && i >= 0 && i < PyTuple_GET_SIZE(closure) ? PyTuple_GET_ITEM(closure, i) : NULL;
}

static FJ_APART PyObject *read_attribute(Node *node, PyObject *parent, PyObject **owned)
{
    /* what a function is made of, and what a module holds, can be had without making a reference */
    if (PyFunction_Check(parent)) {
        PyFunctionObject *fn = (PyFunctionObject *)parent;
        PyObject *name = node->key;
        if (is_name(name, "__globals__"))
            return fn->func_globals;
        if (is_name(name, "__code__"))
            return fn->func_code;
        if (is_name(name, "__closure__"))
            return fn->func_closure ? fn->func_closure : Py_None;
        if (is_name(name, "__defaults__"))
            return fn->func_defaults ? fn->func_defaults : Py_None;
        if (is_name(name, "__kwdefaults__"))
            return fn->func_kwdefaults ? fn->func_kwdefaults : Py_None;
    }
    else if (PyType_Check(parent) && is_name(node->key, "__mro__"))
        return ((PyTypeObject *)parent)->tp_mro;
    else if (PyModule_CheckExact(parent) && _PyType_Lookup(&PyModule_Type, node->key) == NULL) {
        PyObject *value = lookup(node, PyModule_GetDict(parent));
        if (value || PyErr_Occurred())
            return value;
    }
    return *owned = PyObject_GetAttr(parent, node->key);
}

static PyObject *read_instance_dict(PyObject *parent)
{
    PyObject *dict = instance_dict_if_ready(parent);
    if (FJ_LIKELY(dict != NULL))
        return dict;
    dict = PyObject_GenericGetDict(parent, NULL);       /* makes it; the instance keeps it */
    Py_XDECREF(dict);
    return dict ? instance_dict_if_ready(parent) : NULL;
}

static PyObject *read_item(Node *node, PyObject *parent, PyObject **owned)
{
    Py_ssize_t i = node->index;
    if (PyTuple_Check(parent) && Py_TYPE(parent)->tp_as_sequence->sq_item == PyTuple_Type.tp_as_sequence->sq_item) {
        Py_ssize_t n = PyTuple_GET_SIZE(parent);
        i += i < 0 ? n : 0;
        return i >= 0 && i < n ? PyTuple_GET_ITEM(parent, i) : NULL;
    }
    if (PyList_CheckExact(parent)) {
        Py_ssize_t n = PyList_GET_SIZE(parent);
        i += i < 0 ? n : 0;
        return i >= 0 && i < n ? PyList_GET_ITEM(parent, i) : NULL;
    }
    return *owned = PySequence_GetItem(parent, i);
}

/* The key or the value at a place in the table of a dict, or of an instance of a subclass, whose own order may be
 * another one. */
static FJ_APART PyObject *read_place(Node *node, PyObject *parent, int of_key)
{
    if (!(of_key ? PyDict_CheckExact(parent) : PyDict_Check(parent)))
        return NULL;
    PyObject *key, *value;
    /* Without gaps the key stands at its own index, so that reading all of a dict takes no quadratic time. */
    int gaps = !fj_layout.dicts || ((PyDictObject *)parent)->ma_keys->dk_nentries != ((PyDictObject *)parent)->ma_used;
    Py_ssize_t i = gaps ? 0 : node->index, pos = i;
    for (; i >= 0 && PyDict_Next(parent, &pos, &key, &value); i++)
        if (i == node->index)
            return of_key ? key : value;
    return NULL;
}

/* A borrowed value, or one whose only reference is in *owned. NULL: the access failed, perhaps with an exception
 * set. */
static FJ_APART PyObject *read_value(Node *node, PyObject *parent, Frame *frame, PyObject **owned)
{
    switch (node->accessor) {
    case A_ARG:
        return node->index >= 0 && node->index < frame->nargs ? frame->args[node->index] : NULL;
    case A_KEY:
        return FJ_LIKELY(PyDict_Check(parent)) ? lookup(node, parent) : NULL;
    case A_DICT:
        return read_instance_dict(parent);
    case A_ATTR:
        return read_attribute(node, parent, owned);
    case A_INDEX:
        return read_item(node, parent, owned);
    case A_TYPE_LOOKUP:
        return PyType_Check(parent) ? _PyType_Lookup((PyTypeObject *)parent, node->key) : NULL;
    case A_GLOBAL:
        return frame->fn ? read_namespace(node, frame->fn->func_globals, owned) : NULL;
    case A_BUILTIN:
        return frame->fn ? read_namespace(node, frame->fn->func_builtins, owned) : NULL;
    case A_FUNC:
        return (PyObject *)frame->fn;
    case A_CLOSURE_CELL:
        return read_cell(frame, node->index);
    case A_CELL:
        return PyCell_Check(parent) ? PyCell_GET(parent) : NULL;
    case A_CONST:
        return node->weak ? weak_target(node->key) : node->key;
    case A_STATE:
        return Py_None;
    case A_DICT_KEY_AT:
        return read_place(node, parent, 1);
    case A_DICT_VALUE_AT:
        return read_place(node, parent, 0);
    case A_GETITEM:
        return *owned = PyObject_GetItem(parent, node->key);
    case A_BINOP: {
        PyObject *operands[] = {parent, node->key};
        return *owned = PyObject_Vectorcall(node->operation, operands, 2, NULL);
    }
    case A_RBINOP: {
        PyObject *operands[] = {node->key, parent};
        return *owned = PyObject_Vectorcall(node->operation, operands, 2, NULL);
    }
    case A_CALL:
        return *owned = PyObject_CallOneArg(node->key, parent);
    default:
        Py_UNREACHABLE();
    }
}

/* ---- checking ---- */
static int check_length(Check *check, PyObject *value, Frame *frame)
{
    if (PyDict_Check(value))            /* of an instance of a subclass, too, what it holds, whatever its __len__ says */
        return PyDict_GET_SIZE(value) == check->number;
    if (PyList_Check(value) || PyTuple_Check(value))
        return Py_SIZE(value) == check->number;
    if (PyAnySet_Check(value))
        return PySet_GET_SIZE(value) == check->number;
    if (!frame->hold)
        return RESTART;
    return PyObject_Size(value) == check->number;
}

static int same_keys(PyObject *keys, PyObject *dict)
{
    PyObject *key;
    Py_ssize_t pos = 0, i = 0;
    Py_ssize_t n = PyTuple_GET_SIZE(keys);
    if (PyDict_GET_SIZE(dict) != n)
        return FAIL;
    while (PyDict_Next(dict, &pos, &key, NULL)) {
        if (i >= n)
            return FAIL;
        PyObject *expected = PyTuple_GET_ITEM(keys, i++);
        if (key == expected)
            continue;
        Py_INCREF(key);
        int same = Py_IS_TYPE(key, Py_TYPE(expected)) ? PyObject_RichCompareBool(expected, key, Py_EQ) : 0;
        Py_DECREF(key);
        if (same <= 0)
            return FAIL;
    }
    return i == n;
}

static int check_keys(Check *check, PyObject *value, Frame *frame)
{
    if (!PyDict_Check(value))
        return FAIL;
    /* an OrderedDict keeps an order of its own beside the dictionary's */
    if (Py_TYPE(value)->tp_iter == PyDict_Type.tp_iter)
        return same_keys(check->payload, value);
    if (!frame->hold)
        return RESTART;
    PyObject *list = PySequence_List(value);
    if (list == NULL)
        return FAIL;
    int same = PyList_GET_SIZE(list) == PyTuple_GET_SIZE(check->payload);
    for (Py_ssize_t i = 0; same && i < PyList_GET_SIZE(list); i++) {
        PyObject *key = PyList_GET_ITEM(list, i), *expected = PyTuple_GET_ITEM(check->payload, i);
        same = key == expected
            || (Py_IS_TYPE(key, Py_TYPE(expected)) && PyObject_RichCompareBool(expected, key, Py_EQ) == 1);
    }
    Py_DECREF(list);
    return same;
}

static int check_no_key(Check *check, PyObject *value)
{
    if (!PyDict_Check(value))
        return FAIL;
    return PyDict_Contains(value, check->payload) == 0;
}

static FJ_APART int check_dict(Check *check, PyObject *value, Frame *frame)
{
    const DictRecord *record = PyDict_CheckExact(value) ? dict_record(value) : fj_no_record;
    uint64_t version = record_version(record);
    int result = check->kind == C_KEYS ? check_keys(check, value, frame) : check_no_key(check, value);
    if (result == PASS && check->plain_keys && record != fj_no_record && dict_is_at(value, record, version)) {
        check->record = record;
        check->version = version;
    }
    return result;
}

static FJ_APART int check_no_attr(Check *check, PyObject *value)
{
    PyObject *found;
    if (optional_attribute(value, check->payload, &found) < 0)
        return FAIL;
    Py_XDECREF(found);
    return found == NULL;
}

/* What the MRO of a class does not hold. The version of a class is no other's, and changes with all that its MRO
 * holds. */
static int check_lacks(Check *check, PyObject *value)
{
    PyTypeObject *type = (PyTypeObject *)value;
    if (!PyType_Check(value))
        return FAIL;
    if (FJ_LIKELY(type->tp_version_tag != 0 && type->tp_version_tag == check->version))
        return PASS;
    if (_PyType_Lookup(type, check->payload) != NULL)
        return FAIL;
    if (fj_layout.types)
        check->version = type->tp_version_tag ? type->tp_version_tag : NO_VERSION;
    return PASS;
}

static int compare_pointers(const void *a, const void *b)
{
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

static FJ_APART int check_distinct(Distinct *distinct, PyObject **records)
{
    Py_ssize_t n = distinct->n;
    int changed = 0;
    for (Py_ssize_t i = 0; i < n; i++)
        changed |= records[distinct->slots[i]] != distinct->last[i];
    if (FJ_LIKELY(!changed))
        return PASS;
    PyObject **sorted = PyMem_Malloc(n * sizeof(PyObject *));
    if (sorted == NULL)
        return FAIL;
    for (Py_ssize_t i = 0; i < n; i++)
        sorted[i] = records[distinct->slots[i]];
    qsort(sorted, n, sizeof(PyObject *), compare_pointers);
    int result = PASS;
    for (Py_ssize_t i = 1; i < n; i++)
        if (sorted[i] == sorted[i - 1])
            result = FAIL;
    PyMem_Free(sorted);
    for (Py_ssize_t i = 0; result == PASS && i < n; i++)
        distinct->last[i] = records[distinct->slots[i]];
    return result;
}

static FJ_APART int check_holds(PyObject *payload, PyObject **records)
{
    PyObject *function = PyTuple_GET_ITEM(payload, 0), *slots = PyTuple_GET_ITEM(payload, 1);
    Py_ssize_t n = PyTuple_GET_SIZE(slots);
    PyObject *values = PyTuple_New(n);
    for (Py_ssize_t i = 0; values && i < n; i++) {
        PyObject *value = records[PyLong_AsSsize_t(PyTuple_GET_ITEM(slots, i))];
        if (value == NULL)
            Py_CLEAR(values);
        else
            PyTuple_SET_ITEM(values, i, Py_NewRef(value));
    }
    PyObject *answer = values ? PyObject_CallObject(function, values) : NULL;
    int truth = answer ? PyObject_IsTrue(answer) : 0;
    Py_XDECREF(answer);
    Py_XDECREF(values);
    return truth == 1;
}

FJ_APART int guard_check_passes(Check *check, PyObject *value, Frame *frame, PyObject **records)
{
    switch (check->kind) {
    case C_TYPE:
        return Py_TYPE(value) == (PyTypeObject *)check->payload;
    case C_ID:
        return check_is_id(check, value);
    case C_EQUALS:
        return value == check->payload || constant_equal(check->payload, value) == 1;
    case C_LEN:
        return check_length(check, value, frame);
    case C_KEYS: case C_NO_KEY:
        if (FJ_LIKELY(PyDict_CheckExact(value) && dict_is_at(value, check->record, check->version)))
            return PASS;
        return check_dict(check, value, frame);
    case C_NO_ATTR:
        return check_no_attr(check, value);
    case C_LACKS:
        return check_lacks(check, value);
    case C_RECORD:
        if (frame->hold)
            Py_XSETREF(records[check->number], Py_NewRef(value));
        else
            records[check->number] = value;
        return PASS;
    case C_SAME:
        return records[check->number] == records[check->other];
    case C_DISTINCT:
        return check_distinct(check->distinct, records);
    case C_SIZES:
        return size_check_passes(check->sizes, records, frame->hold);
    case C_VERSION:
        return version_check_passes(check->version, check->number, value, frame->hold);
    case C_HOLDS:
        return check_holds(check->payload, records);
    case C_STATE:
        return state_matches(check->payload);
    case C_PY: {
        PyObject *answer = PyObject_CallOneArg(check->payload, value);
        int truth = answer ? PyObject_IsTrue(answer) : 0;
        Py_XDECREF(answer);
        return truth == 1;
    }
    case C_TRUTH:
        return PyObject_IsTrue(value) == check->number;
    default:
        Py_UNREACHABLE();
    }
}

/* ---- the pass ---- */
static FJ_APART void blame_sizes(GuardFailure *failure, const Check *check, PyObject **records)
{
    failure->guard_id = check->guard_id;
    failure->failed_access = 0;
    failure->value = size_check_values(check->sizes, records);
}

static inline void blame(GuardFailure *failure, int guard_id, int failed_access, PyObject *value)
{
    if (failure) {
        failure->guard_id = guard_id;
        failure->failed_access = failed_access;
        failure->value = Py_XNewRef(value);
    }
}

/* Whether a check that failed is one of a number against another one of its type, and is to be passed over. */
static FJ_APART int is_passed_over(GuardFailure *failure, const Check *check, PyObject *value)
{
    if (failure->numbers == NULL || check->kind != C_EQUALS || Py_TYPE(value) != Py_TYPE(check->payload)
        || !(PyLong_CheckExact(value) || PyFloat_CheckExact(value)))
        return 0;
    PyObject *id = PyLong_FromLong(check->guard_id);
    int added = id != NULL && PyList_Append(failure->numbers, id) == 0;
    Py_XDECREF(id);
    return added;
}

static inline __attribute__((always_inline)) int evaluate(GuardTree *tree, Range range, Frame *frame, PyObject **values,
    PyObject **records, GuardFailure *failure, const int hold)
{
    int base = tree->nodes[range.first].depth, held = base, result = PASS;
    for (int i = range.first; i < range.end;) {
        Node *node = &tree->nodes[i];
        PyObject *parent = node->depth ? values[node->depth - 1] : NULL;
        /* both ends passed under this version, hence so did all between them */
        if (node->group_end && PyDict_Check(parent) && dict_is_at(parent, node->record, node->passed)
            && tree->nodes[node->group_end - 1].passed == node->passed) {
            i = node->group_end;
            continue;
        }
        PyObject *owned = NULL, *value;
        if (FJ_LIKELY(node->accessor == A_KEY && PyDict_Check(parent)))
            value = lookup(node, parent);
        else
            value = read_value(node, parent, frame, &owned);
        if (FJ_UNLIKELY(value == NULL)) {
            blame(failure, node->guard_id, 1, NULL);
            result = FAIL;
            break;
        }
        if (hold) {
            if (owned == NULL)
                Py_INCREF(value);
            while (held > node->depth)
                Py_DECREF(values[--held]);
            held = node->depth + 1;
        }
        else if (FJ_UNLIKELY(owned != NULL)) {
            Py_DECREF(owned);
            result = RESTART;
            break;
        }
        values[node->depth] = value;
        Check *check = &tree->checks[node->first_check], *end = check + node->n_checks;
        for (; check < end; check++) {
            if (check->kind == C_LEN && PyDict_CheckExact(value))
                result = PyDict_GET_SIZE(value) == check->number;
            else if (check->kind == C_TENSOR)
                result = tensor_spec_match(check->tensor, value, hold);
            else
                result = guard_check_passes(check, value, frame, records);
            if (FJ_UNLIKELY(result == FAIL && failure && is_passed_over(failure, check, value)))
                result = PASS;
            if (FJ_UNLIKELY(result != PASS))
                break;
        }
        if (FJ_UNLIKELY(result != PASS)) {
            if (result == FAIL && failure && check->kind == C_SIZES)
                blame_sizes(failure, check, records);
            else if (result == FAIL)
                blame(failure, check->guard_id, 0, value);
            break;
        }
        if (node->settled && !(failure && failure->numbers) && dict_is_at(parent, node->record, node->version))
            node->passed = node->version;
        i++;
    }
    if (hold)
        while (held > base)
            Py_DECREF(values[--held]);
    return result;
}

static FJ_APART int evaluate_borrowing(GuardTree *tree, Range range, Frame *frame, PyObject **values,
    PyObject **records, GuardFailure *failure)
{
    return evaluate(tree, range, frame, values, records, failure, 0);
}

static FJ_APART int evaluate_holding(GuardTree *tree, Range range, Frame *frame, PyObject **values, PyObject **records,
    GuardFailure *failure)
{
    return evaluate(tree, range, frame, values, records, failure, 1);
}

int guard_range_passes(GuardTree *tree, Range range, Frame *frame, PyObject **values, PyObject **records,
    GuardFailure *failure)
{
    int result = RESTART;
    if (range.first == range.end)
        return PASS;
    if (!frame->hold)
        result = evaluate_borrowing(tree, range, frame, values, records, failure);
    else
        result = evaluate_holding(tree, range, frame, values, records, failure);
    return result;
}

/* The nodes from `first` on, which is a root. */
static FJ_APART int evaluate_from(GuardTree *tree, int first, Frame *frame, GuardFailure *failure)
{
    PyObject **values = alloca((tree->max_depth + 1) * sizeof(PyObject *));
    PyObject **records = NULL;
    PyObject **heap_records = NULL;
    if (tree->n_records > MAX_STACK_RECORDS) {
        heap_records = records = PyMem_Malloc(tree->n_records * sizeof(PyObject *));
        if (records == NULL)
            return FAIL;
    }
    else
        records = alloca((tree->n_records + 1) * sizeof(PyObject *));
    if (tree->n_records)
        memset(records, 0, tree->n_records * sizeof(PyObject *));
    Range rest = {first, tree->n_nodes};
    frame->hold = tree->runs_python;
    int result = guard_range_passes(tree, rest, frame, values, records, failure);
    if (result == RESTART) {
        tree->runs_python = frame->hold = 1;
        memset(records, 0, tree->n_records * sizeof(PyObject *));
        result = guard_range_passes(tree, rest, frame, values, records, failure);
    }
    for (int i = 0; frame->hold && i < tree->n_records; i++)
        Py_XDECREF(records[i]);
    PyMem_Free(heap_records);
    return result;
}

int guard_tree_passes(GuardTree *tree, PyObject *const *args, Py_ssize_t nargs, PyObject *fn, GuardFailure *failure)
{
    Frame frame = {args, nargs, (PyFunctionObject *)fn, 0};
    int result = RESTART;
    if (tree->memos.n && failure == NULL)
        result = guard_memos_pass(tree, &frame);
    if (result == RESTART) {
        int plain = tree->n_plain_nodes && failure == NULL ? guard_plain_passes(tree, args, nargs) : RESTART;
        int first = plain == PASS ? tree->n_plain_nodes : 0;
        result = plain == FAIL ? FAIL : first == tree->n_nodes ? PASS : evaluate_from(tree, first, &frame, failure);
        if (result == PASS && FJ_UNLIKELY(tree->memos.worthwhile) && !(failure && failure->numbers))
            guard_memo_learn(tree, &frame);
    }
    if (FJ_UNLIKELY(result != PASS))
        PyErr_Clear();                    /* a guard that raises is a guard that fails */
    return result == PASS;
}
