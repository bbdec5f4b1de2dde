/* The making of a memo: the words that hold types and dictionaries to what they are. */
#include "guards/guard_memo_builder.h"

/* ---- what vouches for a whole dictionary ---- */
static int is_restless(const GuardTree *tree, PyObject *dict)
{
    for (int i = 0; i < MAX_RESTLESS; i++)
        if (tree->memos.restless[i] == dict)
            return 1;
    return 0;
}

static int vouch_for_dict(MemoBuilder *b, Level *level)
{
    const DictRecord *record = is_restless(b->tree, level->value) ? fj_no_record : dict_record(level->value);
    if (record == fj_no_record)
        return 0;
    memo_add_word(b, record_word(record), record_version(record), 1);
    level->known = 1;
    level->dict_mode = DICT_VERSION;
    return 1;
}

static int contents_are_guarded(const MemoBuilder *b, const Node *node)
{
    for (int c = node->first_check; c < node->first_check + node->n_checks; c++)
        if (b->tree->checks[c].kind == C_LEN || b->tree->checks[c].kind == C_KEYS)
            return 1;
    return 0;
}

/* ---- types ---- */
_Static_assert(offsetof(PyDictKeysObject, dk_log2_size) % 8 == 0,
    "the word that starts with the size is read as a whole");
_Static_assert(offsetof(PyTypeObject, tp_version_tag) % 8 == 0,
    "the word that starts with the version tag is read as a whole");

static int type_is_settled(PyTypeObject *type)
{
    /* __class__ can be assigned between heap types and between module types only */
    return !(type->tp_flags & Py_TPFLAGS_HEAPTYPE) && !PyType_IsSubtype(type, &PyModule_Type);
}

/* Makes sure that the value has the type it has now, not another one that got its address. */
int memo_pin_type(MemoBuilder *b, Level *level, const Node *node)
{
    PyTypeObject *type = Py_TYPE(level->value);
    if (level->type_pinned)
        return VOUCHED;
    /* A version is one word for what would take several, and no word while the epoch lasts. It lies in the dictionary
       itself, though, where there are no epochs. */
    if (DICT_EPOCHS && level->dict_mode == DICT_UNREAD && PyDict_Check(level->value) && contents_are_guarded(b, node))
        vouch_for_dict(b, level);
    if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
        const Check *check = &b->tree->checks[node->first_check], *end = check + node->n_checks;
        while (check < end && !(check->kind == C_TYPE && check->payload == (PyObject *)type))
            check++;
        if (check == end) {
            /* nothing keeps the type, but no other one will ever have its version */
            if (type->tp_version_tag == 0)
                return RESIDUAL;
            memo_pin_word(b, &level->value->ob_type);
            memo_pin_word(b, &type->tp_version_tag);
            level->type_pinned = 1;
            return VOUCHED;
        }
    }
    if (!level->known || !type_is_settled(type))
        memo_pin_word(b, &level->value->ob_type);
    level->type_pinned = 1;
    return VOUCHED;
}

/* Makes sure that what _PyType_Lookup finds stays. The level's value is a type. */
int memo_pin_type_contents(MemoBuilder *b, Level *level)
{
    PyTypeObject *type = (PyTypeObject *)level->value;
    if (level->known && type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)
        return VOUCHED;
    if (type->tp_version_tag == 0)
        return RESIDUAL;
    memo_pin_word(b, &type->tp_version_tag);
    level->known = 1;
    return VOUCHED;
}

/* ---- dictionaries ---- */
int memo_read_dict(MemoBuilder *b, Level *level)
{
    PyDictObject *dict = (PyDictObject *)level->value;
    if (level->dict_mode != DICT_UNREAD)
        return level->dict_mode;
    if (vouch_for_dict(b, level))
        return DICT_VERSION;
    /* The place of a value: it lies in the dictionary's own table, which a new key may replace but a new value never
       does. */
    memo_pin_word(b, &dict->ma_values);
    memo_pin_word(b, &dict->ma_keys);
    /* and its neighbours: another table at that address may be smaller */
    if (!split_keys_are_fixed(level->value))
        memo_pin_word(b, &dict->ma_keys->dk_log2_size);
    return level->dict_mode = DICT_SLOTS;
}

static int read_slot(MemoBuilder *b, PyDictObject *dict, PyObject *key, Level *out)
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
            memo_pin_word(b, &entries[i].me_key);
        memo_pin_word(b, slot);
        out->value = *slot;
        return VOUCHED;
    }
    return RESIDUAL;
}

int memo_read_key(MemoBuilder *b, const Node *node, Level *dict, Level *out)
{
    if (!key_is_plain(node->key))
        return RESIDUAL;
    if (memo_read_dict(b, dict) == DICT_SLOTS)
        return read_slot(b, (PyDictObject *)dict->value, node->key, out);
    out->value = PyDict_GetItemWithError(dict->value, node->key);
    out->known = 1;
    return out->value ? VOUCHED : ABANDON;
}

/* A dictionary that lies behind a pointer of what was just vouched for. */
int memo_read_key_behind(MemoBuilder *b, const Node *node, PyObject *const *where, Level *out)
{
    Level dict = {.value = *where};
    if (dict.value == NULL || !PyDict_CheckExact(dict.value))
        return RESIDUAL;
    memo_pin_word(b, where);
    memo_pin_word(b, &dict.value->ob_type);
    return memo_read_key(b, node, &dict, out);
}

int memo_vouch_absence(MemoBuilder *b, Level *level, PyObject *key)
{
    if (memo_read_dict(b, level) == DICT_VERSION)
        return VOUCHED;
    PyDictObject *dict = (PyDictObject *)level->value;
    if (!split_keys_are_fixed(level->value) || !PyUnicode_CheckExact(key))
        return RESIDUAL;
    PyDictKeysObject *keys = dict->ma_keys;
    for (Py_ssize_t i = 0; i < keys->dk_nentries; i++)
        if (PyUnicode_Compare(DK_UNICODE_ENTRIES(keys)[i].me_key, key) == 0) {
            memo_pin_word(b, &dict->ma_values->values[i]);
            return VOUCHED;
        }
    memo_pin_word(b, &keys->dk_nentries);      /* other instances add keys, too, always at the end */
    return VOUCHED;
}
