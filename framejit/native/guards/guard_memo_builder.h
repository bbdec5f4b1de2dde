/* What the parts of the making of a memo share; see guard_memo_build.c.
 *
 * Each step answers VOUCHED (the words written so far determine the outcome), RESIDUAL (it has to be evaluated each
 * time) or ABANDON. */
#ifndef FRAMEJIT_GUARD_MEMO_BUILDER_H
#define FRAMEJIT_GUARD_MEMO_BUILDER_H
#include "guards/guard_memo.h"

enum { ABANDON = -1, RESIDUAL = 0, VOUCHED = 1 };
enum { MAX_SPECS = 64, LATEST_WORDS = 509 };

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
    /* among those that were written down, each in a place that follows from its address */
    const void *latest_words[LATEST_WORDS];
    int n_specs, saved;
    int room_words, room_tensors, room_residuals;
    char failed;                  /* out of memory */
} MemoBuilder;

#pragma GCC visibility push(hidden)
/* guard_memo_words.c */
void memo_add_word(MemoBuilder *b, const void *where, uint64_t expected, int is_version);
void memo_separate_versions(GuardMemo *memo);
void memo_pin_word(MemoBuilder *b, const void *where);  /* the word must stay what it is */
void memo_add_residual(MemoBuilder *b, PyObject *value, int check, Range range);
int memo_add_tensor(MemoBuilder *b, PyObject *value, const TensorSpec *spec);
/* guard_memo_pin.c */
int memo_pin_type(MemoBuilder *b, Level *level, const Node *node);
int memo_pin_type_contents(MemoBuilder *b, Level *level);
int memo_read_dict(MemoBuilder *b, Level *level);  /* DICT_VERSION or DICT_SLOTS */
int memo_read_key(MemoBuilder *b, const Node *node, Level *dict, Level *out);
int memo_read_key_behind(MemoBuilder *b, const Node *node, PyObject *const *where, Level *out);
int memo_vouch_absence(MemoBuilder *b, Level *level, PyObject *key);
/* guard_memo_read.c */
int memo_read_node(MemoBuilder *b, const Node *node, const Node *parent_node, Level *parent, int has_children,
    Level *out);
/* guard_memo_check.c */
int memo_build_check(MemoBuilder *b, Check *check, Level *level, const Node *node);
int memo_check_may_run_python(const Check *check);
#pragma GCC visibility pop
#endif
