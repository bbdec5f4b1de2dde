/* See process_state.h. The methods of torch.Tensor get a number for each state they are found in, so that putting the
 * original back gives the first number again. Looking costs one comparison while nobody changed the class. */
#include "torch/process_state.h"
#include "cpython/cpython_layout.h"

ProcessState fj_process = {.level = -1};

enum { N_CLASSES = 2, MAX_KNOWN = 8 };
typedef struct {
    uint32_t number;
    PyObject *contents[N_CLASSES];        /* copies of the dictionaries */
} Methods;

static PyTypeObject *classes[N_CLASSES];  /* torch.Tensor, and the watched class below it */
static Methods known[MAX_KNOWN];          /* the latest first */
static int n_known;
static uint32_t last_number;
static PyObject *name_level, *name_any;

/* Whether Python itself puts a name into the class when it is first pickled or copied (copyreg), or asked for its
 * annotations: no method is looked up by it. */
static int is_remembered(PyObject *key)
{
    static const char *const names[] = {"__slotnames__", "__annotations__", "__annotations_cache__"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (PyUnicode_CompareWithASCIIString(key, names[i]) == 0)
            return 1;
    return 0;
}

/* `copy` was taken without the names that are remembered. */
static int same_contents(PyObject *dict, PyObject *copy)
{
    PyObject *key, *value;
    Py_ssize_t pos = 0, n = 0;
    while (PyDict_Next(dict, &pos, &key, &value)) {
        if (!PyUnicode_CheckExact(key))
            return 0;
        if (PyDict_GetItemWithError(copy, key) == value)
            n++;
        else if (!is_remembered(key))
            return 0;
    }
    return n == PyDict_GET_SIZE(copy);
}

static PyObject *copied_contents(PyObject *dict)
{
    PyObject *key, *value, *copy = PyDict_New();
    Py_ssize_t pos = 0;
    while (copy != NULL && PyDict_Next(dict, &pos, &key, &value))
        if ((!PyUnicode_CheckExact(key) || !is_remembered(key)) && PyDict_SetItem(copy, key, value) < 0)
            Py_CLEAR(copy);
    return copy;
}

static int is_now(const Methods *methods)
{
    for (int i = 0; i < N_CLASSES; i++)
        if (methods->contents[i] == NULL || !same_contents(classes[i]->tp_dict, methods->contents[i]))
            return 0;
    return 1;
}

static void note_methods(void)
{
    Methods made = {.number = ++last_number};
    for (int i = 0; i < N_CLASSES; i++)
        made.contents[i] = copied_contents(classes[i]->tp_dict);
    if (n_known == MAX_KNOWN)
        n_known--;
    Methods oldest = known[n_known];
    memmove(known + 1, known, n_known * sizeof(Methods));
    known[0] = made;
    n_known++;
    for (int i = 0; i < N_CLASSES; i++)
        Py_XDECREF(oldest.contents[i]);   /* last: it may run code of the program */
}

void process_state_find_methods(void)
{
    SavedError error = error_save();
    int i = 0;
    while (i < n_known && !is_now(&known[i]))
        i++;
    if (i == n_known)
        note_methods();
    else if (i > 0) {
        Methods found = known[i];
        memmove(known + 1, known, i * sizeof(Methods));
        known[0] = found;
    }
    fj_process.methods = known[0].number;
    _PyType_Lookup(fj_process.watched, name_any);       /* gives the class a version, if it may have one */
    fj_process.tag = fj_layout.types ? fj_process.watched->tp_version_tag : 0;
    PyErr_Clear();
    error_restore(error);
}

void process_state_find_level(void)
{
    SavedError error = error_save();
    const DictRecord *record = dict_record(fj_process.level_dict);
    uint64_t version = record_version(record);
    PyObject *level = PyDict_GetItemWithError(fj_process.level_dict, name_level);
    fj_process.level = level && PyLong_Check(level) ? (int)PyLong_AsLong(level) : -1;
    fj_process.level_record = record;
    fj_process.level_version = version;
    PyErr_Clear();
    error_restore(error);
}

static PyObject *setup_process_state(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *dict;
    if (!PyArg_ParseTuple(args, "O!O!O!:setup_process_state", &PyType_Type, &classes[0], &PyType_Type, &classes[1],
        &PyDict_Type, &dict))
        return NULL;
    for (int i = 0; i < N_CLASSES; i++)
        Py_INCREF(classes[i]);            /* for good */
    Py_XSETREF(fj_process.level_dict, Py_NewRef(dict));
    fj_process.level_record = fj_no_record;
    fj_process.level_version = NO_VERSION;
    fj_process.watched = classes[1];
    fj_process.tag = 0;
    Py_RETURN_NONE;
}

static PyObject *tensor_methods(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyLong_FromUnsignedLong(tensor_methods_now());
}

static PyMethodDef methods[] = {
    {"setup_process_state", setup_process_state, METH_VARARGS,
     "setup_process_state(tensor_class, parameter_class, dict): where to look; the dict has the level of forward-mode "
     "differentiation as _current_level."},
    {"tensor_methods", tensor_methods, METH_NOARGS,
     "tensor_methods() -> int: a number for the methods of torch.Tensor as they are."},
    {NULL, NULL, 0, NULL},
};

int process_state_init(PyObject *module)
{
    name_level = PyUnicode_InternFromString("_current_level");
    name_any = PyUnicode_InternFromString("__class__");
    if (name_level == NULL || name_any == NULL)
        return -1;
    return PyModule_AddFunctions(module, methods);
}
