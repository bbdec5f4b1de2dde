/* A memo: a proof, found once by walking a whole guard tree, that its guards hold for as long as certain words in
 * memory stay as they are.
 *
 * The next evaluation compares these words in one pass and runs only the checks that no word can vouch for: the
 * metadata of tensors, the torch state, arguments, and whatever needs Python.
 *
 * No object is held. The words stand in such an order that while all words up to one are as they were, the memory of
 * the next is alive: each belongs to the tree itself, to the function, to an argument, to the records of dict_watch.h,
 * or to a value whose place was just compared. The version of a dictionary is unique, so that an equal one means the
 * very same objects in it (they are "known" then). The other places only tell an address, which may have been given to
 * another object meanwhile: what follows from those is compared by content (type, length, items), never taken for
 * granted. */
#ifndef FRAMEJIT_GUARD_MEMO_H
#define FRAMEJIT_GUARD_MEMO_H
#include "guards/guard_tree.h"
#include "torch/tensor_spec.h"

typedef uint64_t __attribute__((may_alias)) AnyWord;
typedef struct {
    const AnyWord *where;
    uint64_t expected;
} Word;

typedef struct {
    PyObject *value;
    const TensorSpec *spec;       /* of the tree; checks that expect the same share one */
} MemoTensor;

/* A check of a value whose place is vouched for, or (check < 0) some subtrees below one. */
typedef struct {
    PyObject *value;              /* of the check; the parent's; NULL at the roots */
    int check;
    Range range;
} Residual;

typedef struct {
    Py_ssize_t index;
    PyObject *value;
} PinnedArg;

struct GuardMemo {
    PyFunctionObject *fn;         /* NULL: any function will do */
    PinnedArg *args;
    Word *words;
    Word *others;                 /* the words but for the versions of dictionaries; NULL: no memory for them */
    uint8_t *is_version;          /* per word: it is the version of a dictionary */
    MemoTensor *tensors;
    Residual *residuals;
    PyObject **records;           /* of C_RECORD; residual subtrees write over theirs in a copy */
    int n_args, n_words, n_others, n_tensors, n_residuals;
    /* of dictionaries when the words were last compared: while it lasts, their versions are the same */
    uint64_t epoch;
    int in_use;
    char hold;                    /* a residual may run Python code */
    char records_change;          /* a residual subtree records */
    unsigned hits;
};

#pragma GCC visibility push(hidden)
GuardMemo *guard_memo_build(GuardTree *tree, Frame *frame);     /* NULL: no use, or no memory; no exception is set */
void guard_memo_free(GuardMemo *memo);
#pragma GCC visibility pop
#endif
