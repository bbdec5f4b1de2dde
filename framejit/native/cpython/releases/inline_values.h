/* From CPython 3.13 on the values of an instance's attributes lie in the instance, also while it has a dictionary: that
 * shares them. Its keys are those of the class, and the place of a key among them never changes. */
#define FJ_INLINE_VALUES 1
static inline PyObject **managed_dict_slot(PyObject *obj)
{
    return (PyObject **)&_PyObject_ManagedDictPointer(obj)->dict;
}
static inline PyObject *managed_dict_if_ready(PyObject *obj) { return *managed_dict_slot(obj); }

static inline int dict_is_split(PyObject *dict) { return ((PyDictObject *)dict)->ma_values != NULL; }
static inline int split_dict_has_at(PyObject *dict, PyObject *key, Py_ssize_t place)
{
    PyDictKeysObject *keys = ((PyDictObject *)dict)->ma_keys;
    return (size_t)place < (size_t)keys->dk_nentries && DK_UNICODE_ENTRIES(keys)[place].me_key == key;
}
static inline PyObject *split_dict_value(PyObject *dict, Py_ssize_t place)
{
    return ((PyDictObject *)dict)->ma_values->values[place];
}
static inline Py_ssize_t split_dict_size(PyObject *dict) { return ((PyDictObject *)dict)->ma_keys->dk_nentries; }
