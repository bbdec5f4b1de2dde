/* Making a memo: walks a tree whose guards hold, without running any Python, and writes down the words that prove it;
 * see guard_memo.h. */
#include "guards/guard_memo_builder.h"

enum { MIN_SAVED = 8 };

static int subtree_end(const GuardTree *tree, int first)
{
    int i = first + 1;
    while (i < tree->n_nodes && tree->nodes[i].depth > tree->nodes[first].depth)
        i++;
    return i;
}

/* What immutable code consists of cannot differ from what the whole evaluation has just seen. */
static int is_part_of_code(const MemoBuilder *b, Level *parent, Range range)
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

static int node_may_run_python(const Node *node)
{
    switch (node->accessor) {
    case A_ATTR: case A_GETITEM: case A_BINOP: case A_RBINOP: case A_CALL:
        return 1;
    case A_KEY:
        return !key_is_plain(node->key);
    default:
        return 0;
    }
}

static void leave_check(MemoBuilder *b, PyObject *value, int c)
{
    b->memo->hold |= memo_check_may_run_python(&b->tree->checks[c]);
    memo_add_residual(b, value, c, (Range){0, 0});
}

static void leave_to_evaluation(MemoBuilder *b, PyObject *parent, Range range)
{
    GuardMemo *memo = b->memo;
    for (int i = range.first; i < range.end; i++) {
        const Node *node = &b->tree->nodes[i];
        memo->hold |= node_may_run_python(node);
        for (int c = node->first_check; c < node->first_check + node->n_checks; c++) {
            memo->records_change |= b->tree->checks[c].kind == C_RECORD;
            memo->hold |= memo_check_may_run_python(&b->tree->checks[c]);
        }
    }
    const Node *nodes = b->tree->nodes;
    Residual *last = memo->n_residuals ? &memo->residuals[memo->n_residuals - 1] : NULL;
    /* siblings, and not one node and the next of another parent that is the same object: only the first one's parent is
       put in its place */
    if (last && last->check < 0 && last->value == parent && last->range.end == range.first
        && nodes[last->range.first].depth == nodes[range.first].depth)
        last->range.end = range.end;
    else
        memo_add_residual(b, parent, -1, range);
}

/* The nodes of a range, whose first is the child of `parent_node` (NULL: a root). */
static int build_nodes(MemoBuilder *b, const Node *parent_node, Range range)
{
    GuardTree *tree = b->tree;
    Level *parent = parent_node ? &b->levels[parent_node->depth] : NULL;
    for (int i = range.first, end; i < range.end; i = end) {
        Node *node = &tree->nodes[i];
        Level *level = &b->levels[node->depth];
        Range whole = {i, end = subtree_end(tree, i)};
        *level = (Level){0};
        int answer = memo_read_node(b, node, parent_node, parent, end > i + 1, level);
        if (answer == ABANDON)
            return ABANDON;
        if (answer == RESIDUAL) {
            if (!is_part_of_code(b, parent, whole))
                leave_to_evaluation(b, parent ? parent->value : NULL, whole);
            continue;
        }
        b->saved++;
        for (int c = node->first_check; c < node->first_check + node->n_checks; c++) {
            answer = memo_build_check(b, &tree->checks[c], level, node);
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
    MemoBuilder b = {.tree = tree, .frame = frame, .memo = PyMem_Calloc(1, sizeof(GuardMemo)),
        .levels = PyMem_Calloc(tree->max_depth + 1, sizeof(Level))};
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
    if (b.memo)
        memo_separate_versions(b.memo);
    return b.memo;
}
