/* The frame hook (PEP 523): captures functions that the user never wrapped, while compiled code calls them.
 *
 * A frame arrives pushed and filled with its arguments, but not yet started. If an entry of its code object matches,
 * the frame is pointed at the replacement code and run in place: no second frame, no copying, and CPython clears it as
 * it would have. The hook costs every Python call of the process its inlining, so it is installed only while it has
 * something to do. */
#include "native.h"
#include "cpython/c_stack.h"
#include "cpython/collector.h"
#include "dispatch/entry_run.h"
#include "dispatch/frame_entry.h"
#include "cpython/cpython_layout.h"

FJ_THREAD_LOCAL HookScope fj_scope;
static int installs, intercept_everything;
static int apart;                               /* how many frames run that nobody is to look into */
static _PyFrameEvalFunction previous_hook;      /* who was there before us, NULL for nobody */
static PyObject *hook_policy, *hook_on_miss;
static PyObject *orphans;                       /* owner of the caches captured outside any dispatcher */
static PyObject *ask_other;                     /* gives what another compiler has each frame of the thread looked at
                                                   by, or None; NULL where nobody can tell */

/* Room for the arguments of a frame, where they have to be copied. */
#define ARGUMENTS_ROOM(n) (FRAME_ARGUMENTS_ARE_TAGGED ? (n) + 1 : 1)

/* ---- in its place, and out of it ---- */
static PyObject *hook(PyThreadState *ts, _PyInterpreterFrame *frame, int throwflag);

static void hook_in(void)
{
    PyInterpreterState *interp = PyInterpreterState_Get();
    _PyFrameEvalFunction present = _PyInterpreterState_GetEvalFrameFunc(interp);
    if (present == hook)                  /* another hook put us back */
        return;
    previous_hook = present == _PyEval_EvalFrameDefault ? NULL : present;
    _PyInterpreterState_SetEvalFrameFunc(interp, hook);
}

static void hook_out(void)
{
    PyInterpreterState *interp = PyInterpreterState_Get();
    /* if someone installed theirs over ours meanwhile, theirs stays, and ours passes every frame on */
    if (_PyInterpreterState_GetEvalFrameFunc(interp) == hook)
        _PyInterpreterState_SetEvalFrameFunc(interp, previous_hook ? previous_hook : _PyEval_EvalFrameDefault);
}

/* ---- running what was there ---- */
static inline PyObject *evaluate(PyThreadState *ts, _PyInterpreterFrame *frame, int throwflag,
    _PyFrameEvalFunction eval)
{
    if (FJ_UNLIKELY(stack_is_low()) && !throwflag && frame->owner == FRAME_OWNED_BY_THREAD) {
        raise_recursion_error();
        return give_up(ts, frame);
    }
    c_recursion_give(ts);
    PyObject *result = eval(ts, frame, throwflag);
    c_recursion_take(ts);
    return result;
}

static inline PyObject *run_original(PyThreadState *ts, _PyInterpreterFrame *frame, int throwflag)
{
    static FJ_THREAD_LOCAL _PyInterpreterFrame *forwarded;
    _PyFrameEvalFunction eval = previous_hook;
    if (FJ_LIKELY(eval == NULL))
        return evaluate(ts, frame, throwflag, _PyEval_EvalFrameDefault);
    /* Two hooks that were installed and removed out of order may each take the other for its predecessor. */
    if (forwarded == frame)
        return evaluate(ts, frame, throwflag, _PyEval_EvalFrameDefault);
    _PyInterpreterFrame *outer = forwarded;
    forwarded = frame;
    PyObject *result = evaluate(ts, frame, throwflag, eval);
    forwarded = outer;
    return result;
}

/* ---- running an entry in a frame ---- */
/* There was no room: run the replacement in a frame of its own and drop the one we were given. */
static PyObject *run_beside(PyThreadState *ts, _PyInterpreterFrame *frame, PyCodeObject *code)
{
    PyFunctionObject *fn = (PyFunctionObject *)FRAME_FUNC(frame);
    int missing = CODE_FRAME_SIZE(code) - CODE_FRAME_SIZE(FRAME_CODE(frame));
    if (missing > 0)
        CODE_GROW_FRAME(FRAME_CODE(frame), missing);      /* later frames of this code come large enough */
    PyFunctionObject *stand_in = (PyFunctionObject *)PyFunction_New((PyObject *)code, fn->func_globals);
    if (stand_in == NULL)
        return give_up(ts, frame);
    Py_XSETREF(stand_in->func_builtins, Py_NewRef(fn->func_builtins));
    stand_in->func_closure = Py_XNewRef(fn->func_closure);
    PyObject *room[ARGUMENTS_ROOM(code->co_argcount)];
    PyObject *result = PyObject_Vectorcall((PyObject *)stand_in, frame_arguments(frame, code->co_argcount, room),
        code->co_argcount, NULL);
    Py_DECREF(stand_in);
    frame_dispose(ts, frame);
    return result;
}

static int fits(PyCodeObject *replacement, PyCodeObject *original)
{
    return replacement->co_nfreevars == original->co_nfreevars && replacement->co_argcount == count_arg_slots(original)
        && !(replacement->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR));
}

/* Takes over the reference to entry. */
static PyObject *run_replacement(PyThreadState *ts, _PyInterpreterFrame *frame, Entry *entry)
{
    PyCodeObject *code = (PyCodeObject *)entry->code;
    if (FJ_UNLIKELY(!fits(code, FRAME_CODE(frame)))) {
        Py_DECREF(entry);
        PyErr_SetString(PyExc_ValueError, "the replacement code does not fit the frame");
        return give_up(ts, frame);
    }
    int active = fj_scope.active, user_code = entry->flags & ENTRY_RUNS_USER_CODE;
    fj_scope.active = user_code ? SCOPE_USER_CODE : SCOPE_COMPILED;
    if (user_code)
        hook_retain();
    PyObject *result = FJ_LIKELY(point_frame_at(ts, frame, code)) ? evaluate(ts, frame, 0, _PyEval_EvalFrameDefault)
                                                                  : run_beside(ts, frame, code);
    if (user_code)
        hook_release();
    fj_scope.active = active;
    Py_DECREF(entry);
    return finish_call(result);
}

/* ---- deciding ---- */
static int can_be_captured(PyCodeObject *code)
{
    const int function = CO_OPTIMIZED | CO_NEWLOCALS;
    return (code->co_flags & function) == function
        && !(code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE));
}

static int is_module_code(PyCodeObject *code)
{
    return !(code->co_flags & (CO_OPTIMIZED | CO_NEWLOCALS))
        && PyUnicode_CompareWithASCIIString(code->co_name, "<module>") == 0;
}

static int ask_policy(PyThreadState *ts, PyCodeObject *code, PyObject *globals)
{
    int possible = can_be_captured(code);
    if ((!possible && !is_module_code(code)) || hook_policy == NULL || hook_on_miss == NULL)
        return CODE_SKIP;
    PyObject *policy = Py_NewRef(hook_policy), *args[] = {(PyObject *)code, globals};
    fj_busy++;
    PyThreadState_EnterTracing(ts);
    PyObject *answer = PyObject_Vectorcall(policy, args, 2, NULL);
    int truth = answer ? PyObject_IsTrue(answer) : -1, is_apart = answer == Py_None;
    PyThreadState_LeaveTracing(ts);
    fj_busy--;
    Py_XDECREF(answer);
    if (truth < 0)
        PyErr_WriteUnraisable(policy);    /* the frame has to run whatever the policy does */
    Py_DECREF(policy);
    return is_apart ? CODE_APART : truth == 1 && possible ? CODE_CAPTURE : CODE_SKIP;
}

static PyObject *find_cache(PyCodeObject *code, CodeRecord *record)
{
    EntryCache *owner = fj_scope.owner;
    PyObject *cache = record && record->cache ? Py_NewRef((PyObject *)record->cache)
                                              : code_cache_make((PyObject *)code, owner ? owner->options : Py_None);
    if (cache && (owner ? cache_adopt(owner, cache) : PySet_Add(orphans, cache)) < 0)
        Py_CLEAR(cache);
    return cache;
}

static __attribute__((noinline)) PyObject *miss_in_frame(PyThreadState *ts, _PyInterpreterFrame *frame,
    CodeRecord *record)
{
    PyCodeObject *code = FRAME_CODE(frame);
    PyObject *cache = find_cache(code, record);
    if (cache == NULL)
        return give_up(ts, frame);
    PyObject *on_miss = Py_NewRef(hook_on_miss);
    int n_args = count_arg_slots(code);
    PyObject *room[ARGUMENTS_ROOM(n_args)];
    PyObject *answer = cache_miss((EntryCache *)cache, on_miss, FRAME_FUNC(frame), frame_arguments(frame, n_args, room),
        n_args);
    Py_DECREF(on_miss);
    if (answer == Py_None) {
        Py_DECREF(answer);
        int64_t begun = fj_now();
        PyObject *result = run_original(ts, frame, 0);
        ((EntryCache *)cache)->python_ns += fj_now() - begun;
        Py_DECREF(cache);
        return result;
    }
    Py_DECREF(cache);
    if (answer == NULL)                   /* not throwflag = 1: 3.13 would show a line of the frame that never ran */
        return give_up(ts, frame);
    return run_replacement(ts, frame, (Entry *)answer);
}

/* Runs a frame, and all that it calls, without the hook and collections: importing a library is thousands of calls that
 * nobody makes again. Frames of other threads pass meanwhile, too. */
static PyObject *run_apart(PyThreadState *ts, _PyInterpreterFrame *frame)
{
    if (apart++ == 0)
        hook_out();
    PyObject *collector = collector_rest();
    PyObject *result = run_original(ts, frame, 0);
    if (collector)
        collector_resume(collector);
    if (--apart == 0 && installs > 0)
        hook_in();
    return result;
}

/* Whether another compiler is looking at this thread's frames, by a hook that stands before ours or behind it. Those
 * are its own, and so would be the frames of our Python. */
static int other_is_at_work(PyThreadState *ts)
{
    int is_alone = _PyInterpreterState_GetEvalFrameFunc(PyThreadState_GetInterpreter(ts)) == hook
        && previous_hook == NULL;
    if (FJ_LIKELY(is_alone) || ask_other == NULL)
        return 0;
    PyObject *looks = PyObject_CallNoArgs(ask_other);
    if (looks == NULL)
        PyErr_Clear();
    Py_XDECREF(looks);
    return looks != NULL && looks != Py_None;
}

static PyObject *consider(PyThreadState *ts, _PyInterpreterFrame *frame)
{
    if (FJ_UNLIKELY(other_is_at_work(ts)))
        return run_original(ts, frame, 0);
    PyCodeObject *code = FRAME_CODE(frame);
    if (fj_scope.passing == (PyObject *)code) {
        fj_scope.passing = NULL;
        return run_original(ts, frame, 0);
    }
    CodeRecord *record = code_record(code);
    int decision = code_decision(code, record);
    if (FJ_UNLIKELY(decision == CODE_UNDECIDED)) {
        decision = ask_policy(ts, code, frame->f_globals);
        if (code_decide((PyObject *)code, decision) < 0)
            return give_up(ts, frame);
        record = code_record(code);
    }
    if (FJ_UNLIKELY(decision == CODE_APART))
        return run_apart(ts, frame);
    if (decision != CODE_CAPTURE)
        return run_original(ts, frame, 0);
    if (record->cache && record->cache->skip)
        return run_original(ts, frame, 0);
    if (record->cache) {
        EntryCache *cache = (EntryCache *)Py_NewRef((PyObject *)record->cache);
        int n_args = count_arg_slots(code);
        PyObject *room[ARGUMENTS_ROOM(n_args)];
        Entry *entry = cache_find(cache, frame_arguments(frame, n_args, room), n_args, FRAME_FUNC(frame));
        int skip = cache->skip;           /* a guard may have run code that says so */
        Py_DECREF(cache);
        if (FJ_LIKELY(entry != NULL))
            return run_replacement(ts, frame, entry);
        if (skip)
            return run_original(ts, frame, 0);
    }
    if (hook_on_miss == NULL)
        return run_original(ts, frame, 0);
    return miss_in_frame(ts, frame, record);
}

static PyObject *hook(PyThreadState *ts, _PyInterpreterFrame *frame, int throwflag)
{
    int active = fj_scope.active;
    if (FJ_LIKELY(active != SCOPE_USER_CODE && (active != SCOPE_OUTSIDE || !intercept_everything)) || fj_busy
        || fj_disabled || throwflag || frame->owner != FRAME_OWNED_BY_THREAD)
        return run_original(ts, frame, throwflag);
    return consider(ts, frame);
}

/* ---- installing ---- */
void hook_retain(void)
{
    if (installs++ == 0 && fj_layout.frames)
        hook_in();
}

void hook_release(void)
{
    if (--installs == 0)
        hook_out();
}

/* ---- Python functions ---- */
static PyObject *install_hook_policy(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *policy, *on_miss;
    if (!PyArg_ParseTuple(args, "OO:install_hook_policy", &policy, &on_miss))
        return NULL;
    if ((policy != Py_None && !PyCallable_Check(policy)) || (on_miss != Py_None && !PyCallable_Check(on_miss))) {
        PyErr_SetString(PyExc_TypeError, "policy and on_miss are callable or None");
        return NULL;
    }
    PyObject *before = PyTuple_Pack(2, hook_policy ? hook_policy : Py_None, hook_on_miss ? hook_on_miss : Py_None);
    if (before == NULL)
        return NULL;
    Py_XSETREF(hook_policy, policy == Py_None ? NULL : Py_NewRef(policy));
    Py_XSETREF(hook_on_miss, on_miss == Py_None ? NULL : Py_NewRef(on_miss));
    return before;
}

static PyObject *ask_other_compiler(PyObject *module, PyObject *ask)
{
    (void)module;
    Py_XSETREF(ask_other, Py_NewRef(ask));
    Py_RETURN_NONE;
}

static PyObject *intercept_all(PyObject *module, PyObject *flag)
{
    (void)module;
    int truth = PyObject_IsTrue(flag);
    if (truth < 0)
        return NULL;
    if (truth && !intercept_everything)
        hook_retain();
    else if (!truth && intercept_everything)
        hook_release();
    intercept_everything = truth;
    if (!truth && PySet_Clear(orphans) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *hook_active(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(_PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == hook);
}

static PyMethodDef methods[] = {
    {"install_hook_policy", install_hook_policy, METH_VARARGS,
     "install_hook_policy(policy, on_miss) -> those before: policy(code, globals) says once for each code object "
     "whether its frames may be\n"
     "captured: None for those that run, with all that they call, as if there were no hook. Of code that is no function "
     "only a module's\n"
     "is asked about. on_miss(cache, fn, flat_args) gives the Entry for a frame, or None."},
    {"ask_other_compiler", ask_other_compiler, METH_O,
     "ask_other_compiler(ask): ask() gives None, unless another compiler looks at each frame of the thread now; the "
     "hook then passes all."},
    {"intercept_all", intercept_all, METH_O,
     "intercept_all(flag): consider every frame of the process. Turning it off drops what was captured so."},
    {"hook_active", hook_active, METH_NOARGS, "hook_active() -> bool: whether the hook is installed now."},
    {NULL, NULL, 0, NULL},
};

int frame_hook_init(PyObject *module)
{
    orphans = PySet_New(NULL);
    return orphans ? PyModule_AddFunctions(module, methods) : -1;
}
