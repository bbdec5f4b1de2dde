/* What the making of a memo writes down: words, tensors and what is left to evaluate each time. */
#include "guards/guard_memo_builder.h"

static int make_room(MemoBuilder *b, void **array, int n, int *room, size_t size)
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

void memo_add_word(MemoBuilder *b, const void *where, uint64_t expected, int is_version)
{
    GuardMemo *memo = b->memo;
    const void **known = &b->latest_words[((uintptr_t)where >> 3) % LATEST_WORDS];
    int room = b->room_words;
    if (*known == where)
        return;  /* the types of modules, say, that each of them has: nothing changes while words are compared */
    *known = where;
    if (!make_room(b, (void **)&memo->words, memo->n_words, &room, sizeof(Word))
        || !make_room(b, (void **)&memo->is_version, memo->n_words, &b->room_words, 1))
        return;
    memo->is_version[memo->n_words] = (uint8_t)is_version;
    memo->words[memo->n_words++] = (Word){where, expected};
}

/* Once all words are written. */
void memo_separate_versions(GuardMemo *memo)
{
    memo->others = !DICT_EPOCHS ? NULL : PyMem_Malloc((memo->n_words + 1) * sizeof(Word));
    for (int i = 0; memo->others && i < memo->n_words; i++)
        if (!memo->is_version[i])
            memo->others[memo->n_others++] = memo->words[i];
    memo->epoch = dict_epoch();
}

void memo_pin_word(MemoBuilder *b, const void *where) { memo_add_word(b, where, *(const AnyWord *)where, 0); }

void memo_add_residual(MemoBuilder *b, PyObject *value, int check, Range range)
{
    GuardMemo *memo = b->memo;
    if (make_room(b, (void **)&memo->residuals, memo->n_residuals, &b->room_residuals, sizeof(Residual)))
        memo->residuals[memo->n_residuals++] = (Residual){value, check, range};
}

static int expect_same(const TensorSpec *a, const TensorSpec *b)
{
    return a->type == b->type && a->keyset == b->keyset && a->ndim == b->ndim && a->dtype == b->dtype
        && a->device == b->device && a->requires_grad == b->requires_grad && a->free_sizes == b->free_sizes
        && a->free_strides == b->free_strides && memcmp(a->dims, b->dims, 2 * a->ndim * sizeof(int64_t)) == 0;
}

int memo_add_tensor(MemoBuilder *b, PyObject *value, const TensorSpec *spec)
{
    GuardMemo *memo = b->memo;
    if (spec->attributes_only)
        return RESIDUAL;
    if (!Py_IS_TYPE(value, spec->type) || match_direct(spec, value) != 1)
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
