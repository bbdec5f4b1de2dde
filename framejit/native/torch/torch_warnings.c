/* Keeps what torch warns of. Operations that are called through the dispatcher write warnings to stderr; torch's Python
 * bindings stand between with a handler that makes them Python's. This is such a handler, without torch's headers: its
 * table has the two destructors, which nobody calls, and `process`. */
#include "torch/torch_warnings.h"
#include "torch/torch_symbols.h"
#include <stdlib.h>
#include <string.h>

typedef struct { const char *function, *file; uint32_t line; } SourceLocation;
typedef struct { const char *data; size_t size; } String;                      /* how a std::string begins */

struct TorchWarning {
    TorchWarning *next;
    const char *file;                              /* a literal of torch's, or NULL */
    uint32_t line;
    int deprecation, verbatim;
    char text[];
};

unsigned long fj_warnings_given;
static struct {
    void *(*handler)(void);
    void (*set_handler)(void *);
    const String *(*text)(const void *);
    const SourceLocation *(*location)(const void *);
    uint16_t (*type)(const void *);  /* a std::variant of two empty classes: a byte of storage, and which of them */
    _Bool (*verbatim)(const void *);
} torch;

void torch_warnings_load(void)
{
    static unsigned looked;
    if (looked == fj_symbols_generation)
        return;
    looked = fj_symbols_generation;
    *(void **)&torch.handler = torch_symbol("_ZN3c1012WarningUtils19get_warning_handlerEv");
    *(void **)&torch.text = torch_symbol("_ZNK3c107Warning3msgB5cxx11Ev");
    *(void **)&torch.location = torch_symbol("_ZNK3c107Warning15source_locationEv");
    *(void **)&torch.type = torch_symbol("_ZNK3c107Warning4typeEv");
    *(void **)&torch.verbatim = torch_symbol("_ZNK3c107Warning8verbatimEv");
    /* without these there is nothing to keep, or nowhere to put it */
    *(void **)&torch.set_handler = torch.handler && torch.text
        ? torch_symbol("_ZN3c1012WarningUtils19set_warning_handlerEPNS_14WarningHandlerE") : NULL;
}

/* Runs without the GIL: operations give it up. */
static void process(WarningScope *scope, const void *warning)
{
    const String *text = torch.text(warning);
    TorchWarning *kept = malloc(sizeof(TorchWarning) + text->size + 1);
    if (kept == NULL)
        return;
    *kept = (TorchWarning){.deprecation = torch.type && (torch.type(warning) >> 8 & 1),
        .verbatim = torch.verbatim && torch.verbatim(warning)};
    if (torch.location) {
        const SourceLocation *location = torch.location(warning);
        kept->file = location->file;
        kept->line = location->line;
    }
    memcpy(kept->text, text->data, text->size);
    kept->text[text->size] = 0;
    *scope->last = kept;
    scope->last = &kept->next;
}

static void never(void) {}

static void *const TABLE[] = {(void *)never, (void *)never, (void *)process};

void warnings_begin(WarningScope *scope)
{
    if (FJ_UNLIKELY(torch.set_handler == NULL)) {
        scope->table = NULL;
        return;
    }
    *scope = (WarningScope){TABLE, torch.handler(), NULL, &scope->first};
    torch.set_handler(scope);
}

static int give(const TorchWarning *warning)
{
    PyObject *category = warning->deprecation ? PyExc_DeprecationWarning : PyExc_UserWarning;
    fj_warnings_given++;
    if (warning->file == NULL)
        return PyErr_WarnEx(category, warning->text, 1);
    if (warning->verbatim)
        return PyErr_WarnExplicit(category, warning->text, warning->file, (int)warning->line, NULL, NULL);
    return PyErr_WarnFormat(category, 1, "%s (Triggered internally at %s:%u.)", warning->text, warning->file,
        warning->line);
}

static void forget(TorchWarning *warning)
{
    while (warning) {
        TorchWarning *next = warning->next;
        free(warning);
        warning = next;
    }
}

int warnings_end(WarningScope *scope)
{
    if (FJ_UNLIKELY(scope->table == NULL))
        return 0;
    torch.set_handler(scope->previous);
    if (FJ_LIKELY(scope->first == NULL))
        return 0;
    int status = 0, raised = PyErr_Occurred() != NULL;
    SavedError error = error_save();               /* the operation's, if it raised */
    for (TorchWarning *warning = scope->first; warning && status == 0; warning = warning->next)
        status = give(warning);
    forget(scope->first);
    if (raised) {
        PyErr_Clear();
        error_restore(error);
    }
    return status;
}

/* ---- warnings that others give ---- */
static int counting;                               /* how many have it open; the GIL guards it */
static PyObject *counter, *show;  /* what stands in the module `warnings` meanwhile, and what stood there */

static PyObject *count_and_show(PyObject *self, PyObject *message)
{
    (void)self;
    fj_warnings_given++;
    PyObject *shown = Py_NewRef(show), *result = PyObject_CallOneArg(shown, message);
    Py_DECREF(shown);
    return result;
}

static PyMethodDef counter_method = {"_showwarnmsg", count_and_show, METH_O, NULL};

/* old: only where that stands there; NULL: whatever does, and it is kept. */
static void put_in_place(PyObject *old, PyObject *new)
{
    PyObject *module = PyImport_ImportModule("warnings"),
        *now = module ? PyObject_GetAttrString(module, counter_method.ml_name) : NULL;
    if (now && now != new && (old == NULL || now == old)
        && PyObject_SetAttrString(module, counter_method.ml_name, new) == 0 && old == NULL)
        Py_XSETREF(show, Py_NewRef(now));
    Py_XDECREF(now);
    Py_XDECREF(module);
    PyErr_Clear();
}

void warnings_count_begin(void)
{
    if (counting++ > 0 || (counter == NULL && (counter = PyCFunction_New(&counter_method, NULL)) == NULL)) {
        PyErr_Clear();
        return;
    }
    put_in_place(NULL, counter);
}

void warnings_count_end(void)
{
    if (--counting > 0 || counter == NULL || show == NULL)
        return;
    SavedError error = error_save();               /* the run may have raised */
    put_in_place(counter, show);                   /* unless somebody put theirs there */
    error_restore(error);
}

static PyObject *without_warnings(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    (void)self;
    if (nargs < 1) {
        PyErr_SetString(PyExc_TypeError, "without_warnings takes a callable and its arguments");
        return NULL;
    }
    WarningScope scope;
    torch_warnings_load();
    warnings_begin(&scope);
    PyObject *result = PyObject_Vectorcall(args[0], args + 1, (size_t)nargs - 1, names);
    if (scope.table) {
        torch.set_handler(scope.previous);
        forget(scope.first);
    }
    return result;
}

/* What showed warnings when a trial began is put back at its end. If that was the counter, and the run that counted has
 * ended meanwhile, what the counter stood for. In C, so that no thread comes between the question and the answer. */
static PyObject *show_warnings_again(PyObject *self, PyObject *shown)
{
    (void)self;
    PyObject *module = PyImport_ImportModule("warnings");
    int status = module == NULL ? -1 : PyObject_SetAttrString(
        module, counter_method.ml_name, shown == counter && counting == 0 && show ? show : shown);
    Py_XDECREF(module);
    if (status < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"show_warnings_again", show_warnings_again, METH_O,
     "show_warnings_again(shown, /): what shows warnings is put back; a counter of them only if it still counts."},
    {"without_warnings", (PyCFunction)(void (*)(void))without_warnings, METH_FASTCALL | METH_KEYWORDS,
     "without_warnings(callable, /, *args, **kwargs): calls an operator; what torch warns of outside of its Python "
     "bindings is dropped."},
    {NULL, NULL, 0, NULL},
};

int torch_warnings_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
