/* The compiled form of a guard tree, shared by its construction (guard_compile.c) and its evaluation (guard_eval.c).
 *
 * Nodes lie in one array in depth-first order. A node reads its value from the value of its parent, which is the latest
 * value one level up, so a single forward pass evaluates the tree without recursion. */
#ifndef FRAMEJIT_GUARD_TREE_H
#define FRAMEJIT_GUARD_TREE_H
#include "cpython/dict_watch.h"
#include "cpython/cpython_layout.h"
#include "native.h"

#define ACCESSORS(X) \
    X(ARG) X(CLOSURE_CELL) X(GLOBAL) X(BUILTIN) X(FUNC) X(CONST) X(ATTR) X(DICT) X(KEY) X(INDEX) X(GETITEM) \
    X(TYPE_LOOKUP) X(CELL) X(BINOP) X(RBINOP) X(CALL) X(DICT_KEY_AT) X(DICT_VALUE_AT) X(STATE)
#define CHECKS(X) \
    X(TYPE) X(ID) X(EQUALS) X(LEN) X(KEYS) X(NO_KEY) X(NO_ATTR) X(LACKS) X(TENSOR) X(RECORD) X(SAME) X(DISTINCT) X(STATE) \
    X(PY) X(TRUTH) X(SIZES) X(VERSION) X(HOLDS)

#define AS_ENUM(name) A_##name,
enum { ACCESSORS(AS_ENUM) A_COUNT };
#undef AS_ENUM
#define AS_ENUM(name) C_##name,
enum { CHECKS(AS_ENUM) C_COUNT };
#undef AS_ENUM

/* A model may have thousands of nodes and checks, all visited at each call: one node fills a cache line, one check half
 * of one. */
typedef struct {
    Py_ssize_t n;
    PyObject **last;              /* the pointers that were distinct last time */
    int slots[];
} Distinct;

typedef struct SizeCheck SizeCheck;

typedef struct {
    uint8_t kind;
    uint8_t weak;                 /* payload is a weak reference to the object to compare with */
    /* checks of a dictionary's keys: comparing them runs no user code, so that the same dictionary passes again */
    uint8_t plain_keys;
    int guard_id;
    union {
        Py_ssize_t number;        /* a length, the record slot, or C_VERSION: the address of the tensor's data */
        const DictRecord *record; /* checks of a dictionary's keys: of the one for which this check last passed */
    };
    union {
        /* checks of a dictionary's keys: the version of it when this check last passed; C_LACKS: the class's;
         * C_VERSION: the tensor's */
        uint64_t version;
        Py_ssize_t other;         /* C_SAME: the second record slot */
    };
    union {
        PyObject *payload;
        TensorSpec *tensor;       /* C_TENSOR */
        Distinct *distinct;       /* C_DISTINCT */
        SizeCheck *sizes;         /* C_SIZES */
    };
} Check;

typedef struct {
    uint8_t accessor;
    uint8_t weak;
    uint8_t settled;              /* no child, and all checks depend on nothing but which object the dictionary holds */
    uint8_t place;                /* of the key among the shared keys of the instances of a class, which are few */
    int depth;
    int first_check, n_checks;
    int group_end;                /* first of a run of settled siblings: the node after the run; else 0 */
    int guard_id;
    PyObject *key;
    union {
        Py_ssize_t index;         /* A_ARG, A_CLOSURE_CELL, A_INDEX, A_DICT_KEY_AT, A_DICT_VALUE_AT */
        PyObject *operation;      /* A_BINOP, A_RBINOP */
        /* A_KEY, A_GLOBAL, A_BUILTIN, A_ATTR: borrowed, the dictionary of that version keeps it alive */
        PyObject *cached;
    };
    uint64_t version;             /* of the dictionary that `cached` was looked up in */
    uint64_t passed;              /* settled nodes: of the dictionary when all checks passed */
    const DictRecord *record;     /* of the dictionary with these versions */
} Node;
_Static_assert(sizeof(Node) <= 64 && sizeof(Check) <= 32, "one node fills a cache line");

static inline int node_has_operation(const Node *node)
{
    return node->accessor == A_BINOP || node->accessor == A_RBINOP;
}

static inline int check_has_payload(const Check *check)
{
    return check->kind != C_TENSOR && check->kind != C_DISTINCT && check->kind != C_SIZES && check->kind != C_VERSION;
}

/* guard_memo.c: shorter proofs that the guards still hold, one for each of the models (say) that lately came this
 * way. */
typedef struct GuardMemo GuardMemo;
enum { MAX_MEMOS = 8, MAX_RESTLESS = 16 };
typedef struct {
    GuardMemo *memo[MAX_MEMOS];
    int n;
    unsigned oldest;
    int wait, patience;  /* passes until the next memo is made; grows while memos turn out to be of no use */
    char worthwhile;                      /* the tree is large enough */
    unsigned next_restless;
    /* dictionaries that change while what is guarded in them does not; compared only */
    const void *restless[MAX_RESTLESS];
} GuardMemos;

/* An argument of which nothing is guarded but the metadata of a tensor. */
typedef struct {
    Py_ssize_t index;
    const TensorSpec *spec;       /* of the check */
} PlainArg;

struct GuardTree {
    PyObject_HEAD
    Node *nodes;
    Check *checks;
    int n_nodes, n_checks, n_records, max_depth;
    int room_nodes, room_checks;
    /* what the first `n_plain_nodes` nodes are about, but for the torch state, which is `plain_state`; see
     * guard_plain.c */
    PlainArg *plain_args;
    PyObject *plain_state;        /* borrowed from its check, or NULL */
    int n_plain_args, n_plain_nodes;
    char runs_python;             /* some step may run Python code, so intermediate values need references */
    GuardMemos memos;
};

enum { FAIL = 0, PASS = 1, RESTART = 2 };     /* as tensor_spec_match() answers, too */
typedef struct { int first, end; } Range;     /* of nodes */
typedef struct {
    PyObject *const *args;
    Py_ssize_t nargs;
    PyFunctionObject *fn;
    int hold;  /* values are held while they are in use, those of C_RECORD until the evaluation ends */
} Frame;

#pragma GCC visibility push(hidden)
int guard_check_passes(Check *check, PyObject *value, Frame *frame, PyObject **records);
/* Evaluates some subtrees of one parent, which the caller has put into `values` and holds. RESTART: again, with
 * frame->hold. */
int guard_range_passes(GuardTree *tree, Range range, Frame *frame, PyObject **values, PyObject **records,
    GuardFailure *failure);
int guard_memos_pass(GuardTree *tree, Frame *frame);         /* PASS, FAIL, or RESTART when no memo can tell */
void guard_memo_learn(GuardTree *tree, Frame *frame);        /* after the whole tree has passed */
void guard_memos_free(GuardTree *tree);
PyObject *guard_memos_hits(GuardTree *tree);
int check_is_settled(const Check *check);
int key_is_plain(PyObject *key);
int guard_parse_slot(PyObject *obj, Py_ssize_t n_records, Py_ssize_t *slot);            /* -1 with an exception */

/* guard_plain.c */
int guard_plain_collect(GuardTree *tree);                    /* once the tree is complete; -1 with an exception */
/* PASS, FAIL, or RESTART when only the evaluation of the nodes can tell */
int guard_plain_passes(const GuardTree *tree, PyObject *const *args, Py_ssize_t nargs);

/* guard_sizes.c */
SizeCheck *size_check_new(PyObject *payload, Py_ssize_t n_records);                      /* NULL with an exception */
void size_check_free(SizeCheck *check);
/* Once the tree is complete. specs[i]: of the C_TENSOR check on the value in record slot i, or NULL; the tree keeps
 * them as long as the check. */
void size_check_attach(SizeCheck *check, const TensorSpec *const *specs);
int size_check_runs_python(const SizeCheck *check);
/* PASS, FAIL or RESTART; never raises */
int size_check_passes(const SizeCheck *check, PyObject *const *records, int may_run_python);
/* tuple of what the slots hold, None where nothing was recorded */
PyObject *size_check_values(const SizeCheck *check, PyObject *const *records);

/* guard_version.c */
int version_check_parse(PyObject *payload, uint64_t *version, Py_ssize_t *address);      /* -1 with an exception */
int version_check_runs_python(void);
/* PASS, FAIL or RESTART; never raises */
int version_check_passes(uint64_t version, Py_ssize_t address, PyObject *value, int may_run_python);
#pragma GCC visibility pop

int guard_tree_compile(GuardTree *tree, PyObject *roots) __attribute__((visibility("hidden")));

static inline int is_name(PyObject *name, const char *text)
{
    return PyUnicode_CompareWithASCIIString(name, text) == 0;
}

static inline PyObject *weak_target(PyObject *ref)
{
    /* Not PyWeakref_GetObject: a dead reference must not turn into None, which is a value that a guard may see. */
    PyObject *obj = ((PyWeakReference *)ref)->wr_object;
    return obj == Py_None || Py_REFCNT(obj) <= 0 ? NULL : obj;
}

static inline int check_is_id(const Check *check, PyObject *value)
{
    return check->weak ? weak_target(check->payload) == value : check->payload == value;
}
#endif
