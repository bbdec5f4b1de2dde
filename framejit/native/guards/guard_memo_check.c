/* The making of a memo: each check of a guard tree, with the words that vouch for its outcome. */
#include "guards/guard_memo_builder.h"

static int check_equals(const Check *check, Level *level)
{
    if (level->value == check->payload)
        return VOUCHED;                   /* the tree keeps it alive: no other object can have its address */
    if (!level->known || !constant_is_plain(check->payload))
        return RESIDUAL;
    return constant_equal(check->payload, level->value) == 1 ? VOUCHED : ABANDON;
}

static int check_length(MemoBuilder *b, const Check *check, Level *level, const Node *node)
{
    PyObject *value = level->value;
    if (PyDict_Check(value) && Py_TYPE(value)->tp_as_mapping->mp_length == PyDict_Type.tp_as_mapping->mp_length) {
        if (memo_pin_type(b, level, node) != VOUCHED)
            return RESIDUAL;
        if (level->dict_mode != DICT_VERSION)
            memo_pin_word(b, &((PyDictObject *)value)->ma_used);
        return PyDict_GET_SIZE(value) == check->number ? VOUCHED : ABANDON;
    }
    if (!PyList_CheckExact(value) && !PyTuple_CheckExact(value))
        return RESIDUAL;
    if (!(level->known && PyTuple_CheckExact(value)) && !level->list_pinned) {
        if (memo_pin_type(b, level, node) != VOUCHED)
            return RESIDUAL;
        memo_pin_word(b, &((PyVarObject *)value)->ob_size);
    }
    return Py_SIZE(value) == check->number ? VOUCHED : ABANDON;
}

static int check_dict(MemoBuilder *b, Check *check, Level *level, const Node *node)
{
    PyObject *dict = level->value;
    int plain = check->kind == C_KEYS || key_is_plain(check->payload);
    for (Py_ssize_t i = 0; check->kind == C_KEYS && i < PyTuple_GET_SIZE(check->payload); i++)
        plain &= key_is_plain(PyTuple_GET_ITEM(check->payload, i));
    if (!plain || !PyDict_Check(dict) || Py_TYPE(dict)->tp_iter != PyDict_Type.tp_iter)
        return RESIDUAL;
    if (node->accessor != A_DICT && memo_pin_type(b, level, node) != VOUCHED)
        return RESIDUAL;
    if (guard_check_passes(check, dict, b->frame, b->memo->records) != PASS)
        return ABANDON;
    if (check->kind == C_NO_KEY)
        return memo_vouch_absence(b, level, check->payload);
    return memo_read_dict(b, level) == DICT_VERSION ? VOUCHED : RESIDUAL;
}

/* That a class lacks an attribute depends on the class and its metaclass only, unless the metaclass computes
 * attributes. */
static int check_no_attribute(MemoBuilder *b, const Check *check, Level *level, const Node *node)
{
    PyTypeObject *type = (PyTypeObject *)level->value, *meta = Py_TYPE(type);
    if (!PyType_Check(level->value) || meta->tp_getattro != PyType_Type.tp_getattro)
        return RESIDUAL;
    if (meta != &PyType_Type) {
        /* it outlives the class, whose version says that the class is the same; the class of a class may be replaced,
           though */
        Level metaclass = {.value = (PyObject *)meta, .known = 1};
        if (memo_pin_type_contents(b, level) != VOUCHED)
            return RESIDUAL;
        memo_pin_word(b, &level->value->ob_type);
        if (memo_pin_type_contents(b, &metaclass) != VOUCHED)
            return RESIDUAL;
    }
    else if ((!level->known && memo_pin_type(b, level, node) != VOUCHED) || memo_pin_type_contents(b, level) != VOUCHED)
        return RESIDUAL;
    else
        memo_pin_word(b, &level->value->ob_type);
    return _PyType_Lookup(meta, check->payload) == NULL && _PyType_Lookup(type, check->payload) == NULL ? VOUCHED
        : RESIDUAL;
}

int memo_build_check(MemoBuilder *b, Check *check, Level *level, const Node *node)
{
    GuardMemo *memo = b->memo;
    PyObject *value = level->value;
    switch (check->kind) {
    case C_TYPE:
        if (Py_TYPE(value) != (PyTypeObject *)check->payload)
            return ABANDON;
        return memo_pin_type(b, level, node);
    case C_ID:
        if (!check_is_id(check, value))
            return ABANDON;
        if (check->weak && !level->known)
            memo_pin_word(b, &((PyWeakReference *)check->payload)->wr_object);
        level->known = 1;                 /* alive ever since, at that address */
        return VOUCHED;
    case C_EQUALS:
        return check_equals(check, level);
    case C_LEN:
        return check_length(b, check, level, node);
    case C_KEYS: case C_NO_KEY:
        return check_dict(b, check, level, node);
    case C_NO_ATTR:
        return check_no_attribute(b, check, level, node);
    case C_LACKS:
        if (!PyType_Check(value) || (!level->known && memo_pin_type(b, level, node) != VOUCHED)
            || memo_pin_type_contents(b, level) != VOUCHED)
            return RESIDUAL;
        return _PyType_Lookup((PyTypeObject *)value, check->payload) == NULL ? VOUCHED : ABANDON;
    case C_TENSOR:
        return memo_add_tensor(b, value, check->tensor);
    case C_RECORD:
        memo->records[check->number] = value;
        return VOUCHED;
    case C_SAME: case C_DISTINCT:
        /* with the same addresses as now in the same places, their relation is the same */
        if (memo->records_change)
            return RESIDUAL;
        return guard_check_passes(check, value, b->frame, memo->records) == PASS ? VOUCHED : ABANDON;
    case C_TRUTH:
        return PyBool_Check(value) ? ((value == Py_True) == check->number ? VOUCHED : ABANDON) : RESIDUAL;
    default:
        return RESIDUAL;
    }
}

int memo_check_may_run_python(const Check *check)
{
    switch (check->kind) {
    case C_TYPE: case C_ID: case C_LEN: case C_LACKS: case C_RECORD: case C_SAME: case C_DISTINCT: case C_STATE:
        return 0;
    case C_EQUALS:
        return !constant_is_plain(check->payload);
    case C_NO_KEY:
        return !key_is_plain(check->payload);
    case C_TENSOR:
        return tensor_spec_runs_python(check->tensor);
    case C_SIZES:
        return size_check_runs_python(check->sizes);
    case C_VERSION:
        return version_check_runs_python();
    default:
        return 1;
    }
}
