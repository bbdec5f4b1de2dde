/* The compiled form of a guard tree, shared by its construction (guard_tree.c) and its evaluation (guard_eval.c).
 *
 * Nodes lie in one array in depth-first order. A node reads its value from the value of its parent, which is the latest value one
 * level up, so a single forward pass evaluates the tree without recursion. */
#ifndef FRAMEJIT_GUARD_TREE_H
#define FRAMEJIT_GUARD_TREE_H
#include "native.h"

#define ACCESSORS(X) \
    X(ARG) X(CLOSURE) X(CLOSURE_CELL) X(GLOBAL) X(BUILTIN) X(FUNC) X(CONST) X(ATTR) X(DICT) X(KEY) X(INDEX) X(GETITEM) X(TYPE) \
    X(TYPE_LOOKUP) X(CELL) X(BINOP) X(RBINOP) X(UNOP) X(CALL) X(DICT_KEY_AT) X(STATE)
#define CHECKS(X) \
    X(TYPE) X(ID) X(EQUALS) X(LEN) X(KEYS) X(HAS_KEY) X(NO_KEY) X(HAS_ATTR) X(NO_ATTR) X(TENSOR) X(RECORD) X(SAME) X(DISTINCT) X(STATE) \
    X(PY) X(TRUTH)

#define AS_ENUM(name) A_##name,
enum { ACCESSORS(AS_ENUM) A_COUNT };
#undef AS_ENUM
#define AS_ENUM(name) C_##name,
enum { CHECKS(AS_ENUM) C_COUNT };
#undef AS_ENUM

typedef struct {
    uint8_t kind;
    uint8_t weak;                 /* payload is a weak reference to the object to compare with */
    int guard_id;
    Py_ssize_t number, other;     /* lengths and record slots */
    uint64_t version;             /* of the dictionary when this check last passed */
    PyObject *payload;
    TensorSpec *tensor;
    PyObject **last_distinct;     /* C_DISTINCT: the pointers that were distinct last time */
} Check;

typedef struct {
    uint8_t accessor;
    uint8_t weak;
    uint8_t settled;              /* no child, and all checks depend on nothing but which object the dictionary holds */
    int depth;
    int first_check, n_checks;
    int group_end;                /* first of a run of settled siblings: the node after the run; else 0 */
    int guard_id;
    Py_ssize_t index;
    uint64_t version;             /* of the dictionary that `cached` was looked up in */
    uint64_t passed;              /* settled nodes: of the dictionary when all checks passed */
    PyObject *key;
    PyObject *aux;                /* the operator of A_BINOP, A_RBINOP and A_UNOP */
    PyObject *cached;             /* borrowed: the dictionary of that version keeps it alive */
} Node;

struct GuardTree {
    PyObject_HEAD
    Node *nodes;
    Check *checks;
    int n_nodes, n_checks, n_records, max_depth;
    int room_nodes, room_checks;
    char runs_python;             /* some step may run Python code, so intermediate values need references */
};

static inline PyObject *weak_target(PyObject *ref)
{
    /* Not PyWeakref_GetObject: a dead reference must not turn into None, which is a value that a guard may see. */
    PyObject *obj = ((PyWeakReference *)ref)->wr_object;
    return obj == Py_None || Py_REFCNT(obj) <= 0 ? NULL : obj;
}
#endif
