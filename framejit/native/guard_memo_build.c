/* Making a memo: walks a tree whose guards hold, without running any Python, and writes down the words that prove it; see guard_memo.h.
 *
 * Each step answers VOUCHED (the words written so far determine the outcome), RESIDUAL (it has to be evaluated each time) or ABANDON. */
#include "guard_memo.h"

enum { ABANDON = -1, RESIDUAL = 0, VOUCHED = 1 };
enum { MAX_SPECS = 64, MIN_SAVED = 8 };

typedef struct {
    PyObject *value;
    char known;                   /* it is certainly the same object, not only the same address */
    char type_pinned, list_pinned;
    char dict_mode;
} Level;
enum { DICT_UNREAD = 0, DICT_VERSION, DICT_SLOTS };

typedef struct {
    GuardTree *tree;
    Frame *frame;
    GuardMemo *memo;
    Level *levels;
    const TensorSpec *specs[MAX_SPECS];
    int n_specs, saved;
    int room_words, room_tensors, room_residuals;
    char failed;                  /* out of memory */
} Builder;

/* ---- collecting ---- */
static int make_room(Builder *b, void **array, int n, int *room, size_t size)
{
    if (n < *room)
        return 1;
    int more = *room ? 2 * *room : 16;
    void *larger = PyMem_Realloc(*array, more * size);
    if (larger == NULL) {
        b->failed = 1;
        return 0;
    }
    *array = larger;
    *room = more;
    return 1;
}

static void add_word(Builder *b, const void *where, uint64_t expected, int is_version)
{
    GuardMemo *memo = b->memo;
    int room = b->room_words;
    if (!make_room(b, (void **)&memo->words, memo->n_words, &room, sizeof(Word))
        || !make_room(b, (void **)&memo->is_version, memo->n_words, &b->room_words, 1))
        return;
    memo->is_version[memo->n_words] = (uint8_t)is_version;
    memo->words[memo->n_words++] = (Word){where, expected};
}

static void pin_word(Builder *b, const void *where) { add_word(b, where, *(const AnyWord *)where, 0); }

static void add_residual(Builder *b, PyObject *value, int check, Range range)
{
    GuardMemo *memo = b->memo;
    if (make_room(b, (void **)&memo->residuals, memo->n_residuals, &b->room_residuals, sizeof(Residual)))
        memo->residuals[memo->n_residuals++] = (Residual){value, check, range};
}

static int expect_same(const TensorSpec *a, const TensorSpec *b)
{
    return a->type == b->type && a->keyset == b->keyset && a->ndim == b->ndim && a->dtype == b->dtype && a->device == b->device
        && a->requires_grad == b->requires_grad && a->free_sizes == b->free_sizes && a->free_strides == b->free_strides
        && memcmp(a->dims, b->dims, 2 * a->ndim * sizeof(int64_t)) == 0;
}

static int add_tensor(Builder *b, PyObject *value, const TensorSpec *spec)
{
    GuardMemo *memo = b->memo;
    if (spec->attributes_only)
        return RESIDUAL;
    if (!Py_IS_TYPE(value, spec->type) || !match_direct(spec, value))
        return ABANDON;
    int known = 0;
    while (known < b->n_specs && !expect_same(b->specs[known], spec))
        known++;
    if (known < b->n_specs)
        spec = b->specs[known];           /* few different ones stay in the fastest memory */
    else if (b->n_specs < MAX_SPECS)
        b->specs[b->n_specs++] = spec;
    if (make_room(b, (void **)&memo->tensors, memo->n_tensors, &b->room_tensors, sizeof(MemoTensor)))
        memo->tensors[memo->n_tensors++] = (MemoTensor){value, spec};
    return VOUCHED;
}

/* ---- types ---- */
_Static_assert(offsetof(PyDictKeysObject, dk_log2_size) % 8 == 0, "the word that starts with the size is read as a whole");
_Static_assert(offsetof(PyTypeObject, tp_version_tag) % 8 == 0, "the word that starts with the version tag is read as a whole");

static int type_is_settled(PyTypeObject *type)
{
    /* __class__ can be assigned between heap types and between module types only */
    return !(type->tp_flags & Py_TPFLAGS_HEAPTYPE) && !PyType_IsSubtype(type, &PyModule_Type);
}

/* Makes sure that the value has the type it has now, not another one that got its address. */
static int pin_type(Builder *b, Level *level, const Node *node)
{
    PyTypeObject *type = Py_TYPE(level->value);
    if (level->type_pinned)
        return VOUCHED;
    if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
        const Check *check = &b->tree->checks[node->first_check], *end = check + node->n_checks;
        while (check < end && !(check->kind == C_TYPE && check->payload == (PyObject *)type))
            check++;
        if (check == end) {
            /* nothing keeps the type, but no other one will ever have its version */
            if (type->tp_version_tag == 0)
                return RESIDUAL;
            pin_word(b, &level->value->ob_type);
            pin_word(b, &type->tp_version_tag);
            level->type_pinned = 1;
            return VOUCHED;
        }
    }
    if (!level->known || !type_is_settled(type))
        pin_word(b, &level->value->ob_type);
    level->type_pinned = 1;
    return VOUCHED;
}

/* Makes sure that what _PyType_Lookup finds stays. The level's value is a type. */
static int pin_type_contents(Builder *b, Level *level)
{
    PyTypeObject *type = (PyTypeObject *)level->value;
    if (level->known && type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)
        return VOUCHED;
    if (type->tp_version_tag == 0)
        return RESIDUAL;
    pin_word(b, &type->tp_version_tag);
    level->known = 1;
    return VOUCHED;
}

/* ---- dictionaries ---- */
static int is_restless(const GuardTree *tree, PyObject *dict)
{
    for (int i = 0; i < MAX_RESTLESS; i++)
        if (tree->memos.restless[i] == dict)
            return 1;
    return 0;
}

static int read_dict(Builder *b, Level *level)
{
    PyDictObject *dict = (PyDictObject *)level->value;
    if (level->dict_mode != DICT_UNREAD)
        return level->dict_mode;
    uint64_t version = is_restless(b->tree, level->value) ? NO_VERSION : dict_version_to_keep(level->value);
    if (version != NO_VERSION) {
        add_word(b, &dict->ma_version_tag, version, 1);
        level->known = 1;
        return level->dict_mode = DICT_VERSION;
    }
    /* The place of a value: it lies in the dictionary's own table, which a new key may replace but a new value never does. */
    pin_word(b, &dict->ma_values);
    pin_word(b, &dict->ma_keys);
    if (!split_keys_are_fixed(level->value))
        pin_word(b, &dict->ma_keys->dk_log2_size);     /* and its neighbours: another table at that address may be smaller */
    return level->dict_mode = DICT_SLOTS;
}

static int read_slot(Builder *b, PyDictObject *dict, PyObject *key, Level *out)
{
    PyDictKeysObject *keys = dict->ma_keys;
    if (!DK_IS_UNICODE(keys) || !PyUnicode_CheckExact(key))
        return RESIDUAL;
    PyDictUnicodeEntry *entries = DK_UNICODE_ENTRIES(keys);
    for (Py_ssize_t i = 0; i < keys->dk_nentries; i++) {
        if (entries[i].me_key != key)
            continue;
        PyObject **slot = dict->ma_values ? &dict->ma_values->values[i] : &entries[i].me_value;
        if (*slot == NULL)
            return ABANDON;
        if (!split_keys_are_fixed((PyObject *)dict))
            pin_word(b, &entries[i].me_key);
        pin_word(b, slot);
        out->value = *slot;
        return VOUCHED;
    }
    return RESIDUAL;
}

static int read_key(Builder *b, const Node *node, Level *dict, Level *out)
{
    if (!key_is_plain(node->key))
        return RESIDUAL;
    if (read_dict(b, dict) == DICT_SLOTS)
        return read_slot(b, (PyDictObject *)dict->value, node->key, out);
    out->value = PyDict_GetItemWithError(dict->value, node->key);
    out->known = 1;
    return out->value ? VOUCHED : ABANDON;
}

/* A dictionary that lies behind a pointer of what was just vouched for. */
static int read_key_behind(Builder *b, const Node *node, PyObject *const *where, Level *out)
{
    Level dict = {.value = *where};
    if (dict.value == NULL || !PyDict_CheckExact(dict.value))
        return RESIDUAL;
    pin_word(b, where);
    pin_word(b, &dict.value->ob_type);
    return read_key(b, node, &dict, out);
}

static int vouch_absence(Builder *b, Level *level, PyObject *key)
{
    if (read_dict(b, level) == DICT_VERSION)
        return VOUCHED;
    PyDictObject *dict = (PyDictObject *)level->value;
    if (!split_keys_are_fixed(level->value) || !PyUnicode_CheckExact(key))
        return RESIDUAL;
    PyDictKeysObject *keys = dict->ma_keys;
    for (Py_ssize_t i = 0; i < keys->dk_nentries; i++)
        if (PyUnicode_Compare(DK_UNICODE_ENTRIES(keys)[i].me_key, key) == 0) {
            pin_word(b, &dict->ma_values->values[i]);
            return VOUCHED;
        }
    pin_word(b, &keys->dk_nentries);      /* other instances add keys, too, always at the end */
    return VOUCHED;
}

/* ---- access ---- */
static int read_place(Builder *b, PyObject *const *where, Level *out)
{
    if (*where == NULL)
        return RESIDUAL;
    pin_word(b, where);
    out->value = *where;
    return VOUCHED;
}

static int read_item(Builder *b, const Node *node, const Node *parent_node, Level *parent, Level *out)
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
        if (pin_type(b, parent, parent_node) != VOUCHED)
            return RESIDUAL;
        pin_word(b, &((PyVarObject *)value)->ob_size);
        if (is_list)
            pin_word(b, &((PyListObject *)value)->ob_item);
        parent->list_pinned = 1;
    }
    return read_place(b, &items[i], out);
}

static int read_cell_of(Builder *b, const Node *node, PyObject **cell)
{
    PyFunctionObject *fn = b->frame->fn;
    if (fn == NULL || fn->func_closure == NULL || node->index < 0 || node->index >= PyTuple_GET_SIZE(fn->func_closure))
        return ABANDON;
    b->memo->fn = fn;
    pin_word(b, &fn->func_closure);
    pin_word(b, &((PyVarObject *)fn->func_closure)->ob_size);
    *cell = PyTuple_GET_ITEM(fn->func_closure, node->index);
    pin_word(b, &PyTuple_GET_ITEM(fn->func_closure, node->index));
    return VOUCHED;
}

static int read_function_part(Builder *b, PyFunctionObject *fn, PyObject *name, Level *out)
{
    PyObject **where = _PyUnicode_EqualToASCIIString(name, "__globals__") ? &fn->func_globals
        : _PyUnicode_EqualToASCIIString(name, "__code__") ? &fn->func_code
        : _PyUnicode_EqualToASCIIString(name, "__closure__") ? &fn->func_closure
        : _PyUnicode_EqualToASCIIString(name, "__defaults__") ? &fn->func_defaults
        : _PyUnicode_EqualToASCIIString(name, "__kwdefaults__") ? &fn->func_kwdefaults : NULL;
    if (where == NULL)
        return RESIDUAL;
    pin_word(b, where);
    out->value = *where ? *where : Py_None;
    return VOUCHED;
}

/* A slot of a class, or what a built-in class keeps in a place of its own. */
static int read_member(Builder *b, const Node *node, PyObject *parent, Level *out)
{
    PyTypeObject *type = Py_TYPE(parent);
    PyObject *found = type->tp_getattro == PyObject_GenericGetAttr ? _PyType_Lookup(type, node->key) : NULL;
    if (found == NULL || !Py_IS_TYPE(found, &PyMemberDescr_Type))
        return RESIDUAL;
    PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
    if (member->type != T_OBJECT && member->type != T_OBJECT_EX)
        return RESIDUAL;
    Level holder = {.value = (PyObject *)type, .known = 1};
    if (pin_type_contents(b, &holder) != VOUCHED)
        return RESIDUAL;
    return read_place(b, (PyObject **)((char *)parent + member->offset), out);
}

static int read_attribute(Builder *b, const Node *node, const Node *parent_node, Level *parent, Level *out)
{
    PyObject *obj = parent->value;
    if (pin_type(b, parent, parent_node) != VOUCHED)
        return RESIDUAL;
    if (PyFunction_Check(obj))
        return read_function_part(b, (PyFunctionObject *)obj, node->key, out);
    if (PyModule_CheckExact(obj) && _PyType_Lookup(&PyModule_Type, node->key) == NULL)
        return read_key_behind(b, node, instance_dict_slot(obj), out);
    return read_member(b, node, obj, out);
}

static int read_node(Builder *b, const Node *node, const Node *parent_node, Level *parent, int has_children, Level *out)
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
    case A_CLOSURE_CELL: case A_CLOSURE:
        if (read_cell_of(b, node, &cell) != VOUCHED)
            return ABANDON;
        out->value = cell;
        return node->accessor == A_CLOSURE ? read_place(b, &((PyCellObject *)cell)->ob_ref, out) : VOUCHED;
    case A_GLOBAL: case A_BUILTIN:
        if (fn == NULL)
            return ABANDON;
        memo->fn = fn;
        return read_key_behind(b, node, node->accessor == A_GLOBAL ? &fn->func_globals : &fn->func_builtins, out);
    case A_CONST:
        out->value = node->weak ? weak_target(node->key) : node->key;
        out->known = 1;
        if (node->weak)
            pin_word(b, &((PyWeakReference *)node->key)->wr_object);
        return out->value ? VOUCHED : ABANDON;
    case A_STATE:
        out->value = Py_None;
        out->known = 1;
        return VOUCHED;
    case A_KEY:
        if (!PyDict_Check(parent->value) || (parent->dict_mode == DICT_UNREAD && parent_node->accessor != A_DICT && pin_type(b, parent, parent_node) != VOUCHED))
            return RESIDUAL;
        return read_key(b, node, parent, out);
    case A_DICT: {
        PyObject **slot = instance_dict_slot(parent->value);
        if (slot == NULL || instance_dict_if_ready(parent->value) == NULL || pin_type(b, parent, parent_node) != VOUCHED)
            return RESIDUAL;
        return read_place(b, slot, out);
    }
    case A_INDEX:
        return read_item(b, node, parent_node, parent, out);
    case A_TYPE:
        pin_word(b, &parent->value->ob_type);
        out->value = (PyObject *)Py_TYPE(parent->value);
        return VOUCHED;
    case A_TYPE_LOOKUP:
        if (!PyType_Check(parent->value) || (!parent->known && pin_type(b, parent, parent_node) != VOUCHED))
            return RESIDUAL;
        out->value = _PyType_Lookup((PyTypeObject *)parent->value, node->key);
        out->known = 1;
        return out->value ? pin_type_contents(b, parent) : ABANDON;
    case A_CELL:
        if (!PyCell_Check(parent->value) || pin_type(b, parent, parent_node) != VOUCHED)
            return RESIDUAL;
        return read_place(b, &((PyCellObject *)parent->value)->ob_ref, out);
    case A_ATTR:
        return read_attribute(b, node, parent_node, parent, out);
    default:
        return RESIDUAL;
    }
}

/* ---- checks ---- */
static int check_equals(const Check *check, Level *level)
{
    if (level->value == check->payload)
        return VOUCHED;                   /* the tree keeps it alive: no other object can have its address */
    if (!level->known || !constant_is_plain(check->payload))
        return RESIDUAL;
    return constant_equal(check->payload, level->value) == 1 ? VOUCHED : ABANDON;
}

static int check_length(Builder *b, const Check *check, Level *level, const Node *node)
{
    PyObject *value = level->value;
    if (PyDict_Check(value) && Py_TYPE(value)->tp_as_mapping->mp_length == PyDict_Type.tp_as_mapping->mp_length) {
        if (pin_type(b, level, node) != VOUCHED)
            return RESIDUAL;
        if (level->dict_mode != DICT_VERSION)
            pin_word(b, &((PyDictObject *)value)->ma_used);
        return PyDict_GET_SIZE(value) == check->number ? VOUCHED : ABANDON;
    }
    if (!PyList_CheckExact(value) && !PyTuple_CheckExact(value))
        return RESIDUAL;
    if (!(level->known && PyTuple_CheckExact(value)) && !level->list_pinned) {
        if (pin_type(b, level, node) != VOUCHED)
            return RESIDUAL;
        pin_word(b, &((PyVarObject *)value)->ob_size);
    }
    return Py_SIZE(value) == check->number ? VOUCHED : ABANDON;
}

static int check_dict(Builder *b, Check *check, Level *level, const Node *node)
{
    PyObject *dict = level->value;
    int plain = check->kind == C_KEYS || key_is_plain(check->payload);
    for (Py_ssize_t i = 0; check->kind == C_KEYS && i < PyTuple_GET_SIZE(check->payload); i++)
        plain &= key_is_plain(PyTuple_GET_ITEM(check->payload, i));
    if (!plain || !PyDict_Check(dict) || Py_TYPE(dict)->tp_iter != PyDict_Type.tp_iter)
        return RESIDUAL;
    if (node->accessor != A_DICT && pin_type(b, level, node) != VOUCHED)
        return RESIDUAL;
    if (guard_check_passes(check, dict, b->frame, b->memo->records) != PASS)
        return ABANDON;
    if (check->kind == C_NO_KEY)
        return vouch_absence(b, level, check->payload);
    return read_dict(b, level) == DICT_VERSION ? VOUCHED : RESIDUAL;
}

/* That a class lacks an attribute depends on the class and its metaclass only, unless the metaclass computes attributes. */
static int check_no_attribute(Builder *b, const Check *check, Level *level, const Node *node)
{
    PyTypeObject *type = (PyTypeObject *)level->value, *meta = Py_TYPE(type);
    if (check->kind != C_NO_ATTR || !PyType_Check(level->value) || meta->tp_getattro != PyType_Type.tp_getattro)
        return RESIDUAL;
    if (meta != &PyType_Type) {
        /* it outlives the class, whose version says that the class is the same; the class of a class may be replaced, though */
        Level metaclass = {.value = (PyObject *)meta, .known = 1};
        if (pin_type_contents(b, level) != VOUCHED)
            return RESIDUAL;
        pin_word(b, &level->value->ob_type);
        if (pin_type_contents(b, &metaclass) != VOUCHED)
            return RESIDUAL;
    }
    else if ((!level->known && pin_type(b, level, node) != VOUCHED) || pin_type_contents(b, level) != VOUCHED)
        return RESIDUAL;
    else
        pin_word(b, &level->value->ob_type);
    return _PyType_Lookup(meta, check->payload) == NULL && _PyType_Lookup(type, check->payload) == NULL ? VOUCHED : RESIDUAL;
}

static int build_check(Builder *b, Check *check, Level *level, const Node *node)
{
    GuardMemo *memo = b->memo;
    PyObject *value = level->value;
    switch (check->kind) {
    case C_TYPE:
        if (Py_TYPE(value) != (PyTypeObject *)check->payload)
            return ABANDON;
        return pin_type(b, level, node);
    case C_ID:
        if (!check_is_id(check, value))
            return ABANDON;
        if (check->weak && !level->known)
            pin_word(b, &((PyWeakReference *)check->payload)->wr_object);
        level->known = 1;                 /* alive ever since, at that address */
        return VOUCHED;
    case C_EQUALS:
        return check_equals(check, level);
    case C_LEN:
        return check_length(b, check, level, node);
    case C_KEYS: case C_HAS_KEY: case C_NO_KEY:
        return check_dict(b, check, level, node);
    case C_HAS_ATTR: case C_NO_ATTR:
        return check_no_attribute(b, check, level, node);
    case C_TENSOR:
        return add_tensor(b, value, check->tensor);
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

/* ---- the walk ---- */
static int subtree_end(const GuardTree *tree, int first)
{
    int i = first + 1;
    while (i < tree->n_nodes && tree->nodes[i].depth > tree->nodes[first].depth)
        i++;
    return i;
}

/* What immutable code consists of cannot differ from what the whole evaluation has just seen. */
static int is_part_of_code(const Builder *b, Level *parent, Range range)
{
    const GuardTree *tree = b->tree;
    if (parent == NULL || !parent->known || !PyCode_Check(parent->value) || tree->nodes[range.first].accessor != A_ATTR)
        return 0;
    for (int i = range.first; i < range.end; i++) {
        const Node *node = &tree->nodes[i];
        if (i > range.first && node->accessor != A_INDEX)
            return 0;
        for (int c = node->first_check; c < node->first_check + node->n_checks; c++) {
            const Check *check = &tree->checks[c];
            if (check->kind != C_LEN && check->kind != C_EQUALS && check->kind != C_TYPE)
                return 0;
            if (!check_is_settled(check) && check->kind != C_LEN)
                return 0;
        }
    }
    return 1;
}

static int check_may_run_python(const Check *check)
{
    switch (check->kind) {
    case C_TYPE: case C_ID: case C_LEN: case C_RECORD: case C_SAME: case C_DISTINCT: case C_STATE:
        return 0;
    case C_EQUALS:
        return !constant_is_plain(check->payload);
    case C_NO_KEY: case C_HAS_KEY:
        return !key_is_plain(check->payload);
    case C_TENSOR:
        return tensor_spec_runs_python(check->tensor);
    default:
        return 1;
    }
}

static int node_may_run_python(const Node *node)
{
    switch (node->accessor) {
    case A_ATTR: case A_GETITEM: case A_BINOP: case A_RBINOP: case A_UNOP: case A_CALL:
        return 1;
    case A_KEY:
        return !key_is_plain(node->key);
    default:
        return 0;
    }
}

static void leave_check(Builder *b, PyObject *value, int c)
{
    b->memo->hold |= check_may_run_python(&b->tree->checks[c]);
    add_residual(b, value, c, (Range){0, 0});
}

static void leave_to_evaluation(Builder *b, PyObject *parent, Range range)
{
    GuardMemo *memo = b->memo;
    for (int i = range.first; i < range.end; i++) {
        const Node *node = &b->tree->nodes[i];
        memo->hold |= node_may_run_python(node);
        for (int c = node->first_check; c < node->first_check + node->n_checks; c++) {
            memo->records_change |= b->tree->checks[c].kind == C_RECORD;
            memo->hold |= check_may_run_python(&b->tree->checks[c]);
        }
    }
    Residual *last = memo->n_residuals ? &memo->residuals[memo->n_residuals - 1] : NULL;
    if (last && last->check < 0 && last->value == parent && last->range.end == range.first)
        last->range.end = range.end;
    else
        add_residual(b, parent, -1, range);
}

/* The nodes of a range, whose first is the child of `parent_node` (NULL: a root). */
static int build_nodes(Builder *b, const Node *parent_node, Range range)
{
    GuardTree *tree = b->tree;
    Level *parent = parent_node ? &b->levels[parent_node->depth] : NULL;
    for (int i = range.first, end; i < range.end; i = end) {
        Node *node = &tree->nodes[i];
        Level *level = &b->levels[node->depth];
        Range whole = {i, end = subtree_end(tree, i)};
        *level = (Level){0};
        int answer = read_node(b, node, parent_node, parent, end > i + 1, level);
        if (answer == ABANDON)
            return ABANDON;
        if (answer == RESIDUAL) {
            if (!is_part_of_code(b, parent, whole))
                leave_to_evaluation(b, parent ? parent->value : NULL, whole);
            continue;
        }
        b->saved++;
        for (int c = node->first_check; c < node->first_check + node->n_checks; c++) {
            answer = build_check(b, &tree->checks[c], level, node);
            if (answer == ABANDON)
                return ABANDON;
            if (answer == RESIDUAL)
                leave_check(b, level->value, c);
        }
        if (build_nodes(b, node, (Range){i + 1, end}) == ABANDON)
            return ABANDON;
    }
    return VOUCHED;
}

GuardMemo *guard_memo_build(GuardTree *tree, Frame *frame)
{
    enum { MOST_RECORDS = 1024 };
    if (tree->n_records > MOST_RECORDS)
        return NULL;
    Builder b = {.tree = tree, .frame = frame, .memo = PyMem_Calloc(1, sizeof(GuardMemo)), .levels = PyMem_Calloc(tree->max_depth + 1, sizeof(Level))};
    int answer = ABANDON;
    frame->hold = 0;
    if (b.memo && b.levels) {
        b.memo->args = PyMem_Calloc(frame->nargs + 1, sizeof(PinnedArg));
        b.memo->records = PyMem_Calloc(tree->n_records + 1, sizeof(PyObject *));
        if (b.memo->args && b.memo->records)
            answer = build_nodes(&b, NULL, (Range){0, tree->n_nodes});
    }
    PyMem_Free(b.levels);
    PyErr_Clear();
    if (b.memo && (answer == ABANDON || b.failed || b.saved < MIN_SAVED)) {
        guard_memo_free(b.memo);
        return NULL;
    }
    return b.memo;
}
