/* Using memos: see guard_memo.h. guard_memo_build.c makes them. */
#include "guards/guard_memo.h"
#include <alloca.h>

enum { MAX_PATIENCE = 1000, PAID_OFF = 4 /* hits that make a memo worth its making */ };

void guard_memo_free(GuardMemo *memo)
{
    PyMem_Free(memo->args);
    PyMem_Free(memo->words);
    PyMem_Free(memo->others);
    PyMem_Free(memo->is_version);
    PyMem_Free(memo->tensors);
    PyMem_Free(memo->residuals);
    PyMem_Free(memo->records);
    PyMem_Free(memo);
}

void guard_memos_free(GuardTree *tree)
{
    for (int i = 0; i < tree->memos.n; i++)
        guard_memo_free(tree->memos.memo[i]);
    tree->memos.n = 0;
}

PyObject *guard_memos_hits(GuardTree *tree)
{
    PyObject *hits = PyTuple_New(tree->memos.n);
    for (int i = 0; hits && i < PyTuple_GET_SIZE(hits); i++) {
        PyObject *n = PyLong_FromUnsignedLong(i < tree->memos.n ? tree->memos.memo[i]->hits : 0);
        if (n == NULL)
            Py_CLEAR(hits);
        else
            PyTuple_SET_ITEM(hits, i, n);
    }
    return hits;
}

/* ---- checking ---- */
static inline int is_for(const GuardMemo *memo, const Frame *frame)
{
    if (memo->fn && memo->fn != frame->fn)
        return 0;
    for (int i = 0; i < memo->n_args; i++)
        if (memo->args[i].index >= frame->nargs || frame->args[memo->args[i].index] != memo->args[i].value)
            return 0;
    return 1;
}

/* The first word that differs, or n. */
static inline int first_change_in(const Word *words, int n)
{
    const Word *word = words, *end = words + n;
    for (; word < end; word++)
        if (FJ_UNLIKELY(*word->where != word->expected))
            break;
    return (int)(word - words);
}

/* The first word that differs, or n_words. */
static inline int first_change(GuardMemo *memo)
{
    if (FJ_LIKELY(dict_epoch_is(memo->epoch) && memo->others)
        && first_change_in(memo->others, memo->n_others) == memo->n_others)
        return memo->n_words;
    int changed = first_change_in(memo->words, memo->n_words);
    memo->epoch = dict_epoch();
    return changed;
}

static int residual_passes(GuardTree *tree, GuardMemo *memo, const Residual *residual, Frame *frame, PyObject **values,
    PyObject **records)
{
    if (residual->check >= 0) {
        Check *check = &tree->checks[residual->check];
        return check->kind == C_TENSOR ? tensor_spec_match(check->tensor, residual->value, memo->hold)
                                       : guard_check_passes(check, residual->value, frame, records);
    }
    int depth = tree->nodes[residual->range.first].depth;
    if (depth)
        values[depth - 1] = residual->value;
    return guard_range_passes(tree, residual->range, frame, values, records, NULL);
}

static int residuals_pass(GuardTree *tree, GuardMemo *memo, Frame *frame)
{
    PyObject **values = alloca((tree->max_depth + 1) * sizeof(PyObject *)), **records = memo->records;
    int result = PASS;
    frame->hold = memo->hold;
    if (memo->records_change || frame->hold) {
        records = alloca((tree->n_records + 1) * sizeof(PyObject *));
        memcpy(records, memo->records, tree->n_records * sizeof(PyObject *));
    }
    for (int i = 0; frame->hold && i < tree->n_records; i++)
        Py_XINCREF(records[i]);
    for (int i = 0; result == PASS && i < memo->n_residuals; i++)
        result = residual_passes(tree, memo, &memo->residuals[i], frame, values, records);
    for (int i = 0; frame->hold && i < tree->n_records; i++)
        Py_XDECREF(records[i]);
    return result;
}

/* residuals_pass while Python code may run: what the words vouch for may change meanwhile, and so may the list of
 * memos. */
static FJ_APART int residuals_pass_holding(GuardTree *tree, GuardMemo *memo, Frame *frame)
{
    memo->in_use++;
    for (int i = 0; i < memo->n_residuals; i++)
        Py_XINCREF(memo->residuals[i].value);
    int result = residuals_pass(tree, memo, frame);
    for (int i = 0; i < memo->n_residuals; i++)
        Py_XDECREF(memo->residuals[i].value);
    memo->in_use--;
    return result;
}

static FJ_APART void drop(GuardMemos *memos, int i)
{
    GuardMemo *memo = memos->memo[i];
    if (memo->in_use)
        return;
    memos->patience = memo->hits >= PAID_OFF ? 0 : Py_MIN(2 * memos->patience + 1, MAX_PATIENCE);
    memos->wait = memos->patience;
    memos->memo[i] = memos->memo[--memos->n];
    guard_memo_free(memo);
}

static FJ_APART void note_change(GuardMemos *memos, GuardMemo *memo, int changed)
{
    if (memo->is_version[changed])
        memos->restless[memos->next_restless++ % MAX_RESTLESS] =
            dict_of_record_word((const uint64_t *)memo->words[changed].where);
}

static inline int memo_passes(GuardTree *tree, GuardMemo *memo, Frame *frame)
{
    for (const MemoTensor *tensor = memo->tensors, *end = tensor + memo->n_tensors; tensor < end; tensor++)
        if (FJ_UNLIKELY(!Py_IS_TYPE(tensor->value, tensor->spec->type)
            || match_direct(tensor->spec, tensor->value) != 1))
            return FAIL;
    int result = PASS;
    if (memo->n_residuals)
        result = memo->hold ? residuals_pass_holding(tree, memo, frame) : residuals_pass(tree, memo, frame);
    /* it met a value that needs Python, which may have run: the values that the words vouched for need not exist any
       more */
    memo->hold |= result == RESTART;
    return result;
}

int guard_memos_pass(GuardTree *tree, Frame *frame)
{
    GuardMemos *memos = &tree->memos;
    if (FJ_UNLIKELY(fj_tensor_access != ACCESS_DIRECT))
        return RESTART;
    for (int i = 0; i < memos->n; i++) {
        GuardMemo *memo = memos->memo[i];
        if (!is_for(memo, frame))
            continue;
        int changed = first_change(memo);
        if (FJ_LIKELY(changed == memo->n_words)) {
            memo->hits++;
            return memo_passes(tree, memo, frame);
        }
        note_change(memos, memo, changed);
        drop(memos, i);
        break;
    }
    return RESTART;
}

/* ---- keeping ---- */
void guard_memo_learn(GuardTree *tree, Frame *frame)
{
    GuardMemos *memos = &tree->memos;
    if (memos->wait > 0) {
        memos->wait--;
        return;
    }
    if (fj_tensor_access != ACCESS_DIRECT || !fj_layout.dicts || !fj_layout.instances || !fj_layout.types)
        return;
    GuardMemo *memo = guard_memo_build(tree, frame);
    if (memo == NULL) {
        memos->patience = Py_MIN(2 * memos->patience + 1, MAX_PATIENCE);
        memos->wait = memos->patience;
        return;
    }
    if (memos->n == MAX_MEMOS)
        drop(memos, (int)(memos->oldest++ % MAX_MEMOS));
    if (memos->n == MAX_MEMOS)
        guard_memo_free(memo);            /* the oldest one is in use */
    else
        memos->memo[memos->n++] = memo;
}
