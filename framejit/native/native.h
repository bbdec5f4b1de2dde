/* The types and functions the files of framejit._native share. One section for each file. */
#ifndef FRAMEJIT_NATIVE_H
#define FRAMEJIT_NATIVE_H
#include "cpython/compat.h"

/* Between the files of this extension only: calls become direct and variables need no indirection. */
#pragma GCC visibility push(hidden)

/* ---- what the definitions of types have in common ---- */
#define TYPE_OF(name) PyVarObject_HEAD_INIT(NULL, 0) .tp_name = "framejit._native." #name, .tp_basicsize = sizeof(name)
#define COLLECTED(prefix) .tp_dealloc = prefix##_dealloc, .tp_traverse = prefix##_traverse, .tp_clear = prefix##_clear
#define CALLED_BY_VECTOR(name) .tp_call = PyVectorcall_Call, .tp_vectorcall_offset = offsetof(name, vectorcall)

/* ---- module.c: the two switches that turn interception off ---- */
extern int fj_disabled;                     /* the whole process */
extern FJ_THREAD_LOCAL int fj_busy;         /* this thread is inside the compiler */

/* ---- tensor_spec.c, tensor_access.c ---- */
typedef struct TensorSpec TensorSpec;
typedef enum { ACCESS_DIRECT, ACCESS_SHIM, ACCESS_ATTRIBUTES } TensorAccess;
extern TensorAccess fj_tensor_access;
TensorSpec *tensor_spec_new(PyObject *payload);           /* NULL with an exception */
void tensor_spec_free(TensorSpec *spec);
int tensor_spec_traverse(TensorSpec *spec, visitproc visit, void *arg);
int tensor_spec_init(void);
int tensor_spec_runs_python(const TensorSpec *spec);
int tensor_access_init(PyObject *module);
int tensor_owners_init(PyObject *module);
int autograd_nodes_init(PyObject *module);

/* ---- thread_state.c ---- */
extern PyTypeObject State_Type;
int state_matches(PyObject *state);                       /* 1 or 0; never raises */
int thread_state_init(PyObject *module);

/* ---- constant_equal.c ---- */
int constant_equal(PyObject *constant, PyObject *value);  /* 1, 0 or -1 with an exception */
int constant_is_plain(PyObject *constant);  /* comparing it runs no user code and its value never changes */

/* ---- guard_tree.c, guard_eval.c ---- */
typedef struct GuardTree GuardTree;
typedef struct {
    int guard_id;
    int failed_access;
    PyObject *value;                        /* strong or NULL */
    /* a list that takes the ids of guards on numbers that do not hold, which are passed over then; or NULL */
    PyObject *numbers;
} GuardFailure;
extern PyTypeObject GuardTree_Type;
int guard_tree_passes(GuardTree *tree, PyObject *const *args, Py_ssize_t nargs, PyObject *fn, GuardFailure *failure);
int guard_tree_expired(GuardTree *tree);  /* an object it compares with is gone: it can never pass again */
int guard_tree_init(PyObject *module);
int guard_version_init(PyObject *module);

/* ---- entry.c ---- */
enum { ENTRY_RUNS_USER_CODE = 1 };
typedef struct {
    PyObject_HEAD
    PyObject *code, *function, *guards, *slots, *tag;
    unsigned long long hits;
    int flags;
    char valid;
} Entry;
typedef struct {
    PyObject_VAR_HEAD
    PyObject *target;
    /* list that an earlier frame has, which a traceback shows: for what the frame that goes on holds; or NULL */
    PyObject *kept;
    PyObject *args[1];
} TailCall;
extern PyTypeObject Entry_Type, Slot_Type, TailCall_Type;
/* the function may empty the TailCall that args are of */
PyObject *call_taking_over(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *trampoline(PyObject *result);  /* steals result; runs tail calls until a value comes */
PyObject *raise_waiting(PyObject *result);  /* steals result; raises what fj_scope.waiting is, instead */
int entry_init(PyObject *module);

int64_t fj_now(void);                       /* nanoseconds of a clock that never goes back */

/* ---- entry_cache.c: the list of entries a Dispatcher or a code object has ---- */
typedef struct EntryCache {
    PyObject_HEAD
    PyObject *entries;  /* tuple; replaced, never changed, so that a scan needs one reference only */
    PyObject *code;                         /* the code object whose argument slots the entries take */
    PyObject *options;
    PyObject *raising, *resume_points;      /* what captures left for the next one, or NULL */
    PyObject *children;  /* set of the per-code caches filled while entries of this one ran, or NULL */
    PyObject *weakrefs;
    struct EntryCache *next, *previous;     /* the caches of code objects form a ring */
    Entry *last_late_hit;                   /* compared only, never followed */
    unsigned long long hits, misses;
    int64_t python_ns;                      /* that frames of the code ran as they are, since no entry fitted them */
    char skip;
} EntryCache;
extern PyTypeObject EntryCache_Type;
/* strong reference or NULL */
Entry *cache_find(EntryCache *cache, PyObject *const *args, Py_ssize_t nargs, PyObject *fn);
PyObject *cache_miss(EntryCache *cache, PyObject *on_miss, PyObject *fn, PyObject *const *args, Py_ssize_t nargs);
int cache_traverse(EntryCache *cache, visitproc visit, void *arg);
int cache_clear(EntryCache *cache);
int cache_setup(EntryCache *cache, PyObject *code, PyObject *options);
int cache_adopt(EntryCache *parent, PyObject *child);
int entry_cache_init(PyObject *module);

/* ---- bind.c ---- */
int count_arg_slots(PyCodeObject *code);
int bind_arguments(PyFunctionObject *fn, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **flat);

/* ---- dispatcher.c ---- */
extern PyTypeObject Dispatcher_Type;
/* may give a TailCall */
PyObject *dispatcher_call_once(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);
int dispatcher_init(PyObject *module);

/* ---- code_record.c: what is known about a code object, kept in the object itself ---- */
/* CODE_APART: a frame of it, and all that it calls, runs without the hook */
enum { CODE_UNDECIDED, CODE_CAPTURE, CODE_SKIP, CODE_NEVER, CODE_APART };
typedef struct {
    int decision;
    unsigned generation;                    /* of the decision; CODE_NEVER outlives every generation */
    EntryCache *cache;                      /* borrowed: owned by whoever was running when its entries were captured */
} CodeRecord;
CodeRecord *code_record(PyCodeObject *code);              /* NULL if there is none */
int code_decision(PyCodeObject *code, CodeRecord *record);
int code_decide(PyObject *code, int decision);
PyObject *code_cache_make(PyObject *code, PyObject *options);  /* new reference; the existing one if there is one */
void code_cache_forget(EntryCache *cache);  /* the cache dies: its code object must not point to it any more */
int code_record_init(PyObject *module);

/* ---- frame_hook.c: what the hook may do on this thread at this moment ---- */
enum { SCOPE_OUTSIDE = 0, SCOPE_USER_CODE = 1, SCOPE_COMPILED = -1 };
typedef struct {
    EntryCache *owner;  /* the dispatcher whose entry runs, borrowed: it owns what is captured meanwhile */
    PyObject *passing;                      /* the code whose next frame has been considered already; compared only */
    TailCall *tail_call;                    /* the one that is being made, borrowed from the trampoline */
    TailCall *handed_over;                  /* the one whose arguments the function that begins now may take over */
    PyObject *kept;                         /* borrowed from the TailCall that led to the frame that runs */
    PyObject *waiting;  /* what a handler of a signal raised while a graph ran, for where the program goes on; or NULL */
    int active;
} HookScope;
extern FJ_THREAD_LOCAL HookScope fj_scope;
void hook_retain(void);
void hook_release(void);
int frame_hook_init(PyObject *module);

/* ---- lru_cache.c ---- */
int lru_cache_init(PyObject *module);

/* ---- type_slots.c ---- */
int type_slots_init(PyObject *module);

/* ---- fork.c ---- */
int fork_init(PyObject *module);

/* ---- hash_table.c ---- */
int hash_table_init(PyObject *module);

/* ---- processor.c ---- */
int processor_init(PyObject *module);

/* ---- selector.c ---- */
int selector_init(PyObject *module);
int size_switch_init(PyObject *module);

/* torch_warnings.c: what operators warn of */
int torch_warnings_init(PyObject *module);

#pragma GCC visibility pop
#endif
