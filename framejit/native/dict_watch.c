/* Keeps the version numbers of dictionaries true on CPython 3.13; see compat.h. */
#include "compat.h"

#if FJ_DICT_NUMBERS == DICT_NUMBERS_WATCHED
uint64_t fj_watch_mark;
int fj_watcher = -1;

static int renew_version(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value)
{
    (void)key;
    (void)value;
    if (event != PyDict_EVENT_DEALLOCATED) {
        PyDictObject *d = (PyDictObject *)dict;
        d->ma_version_tag = DICT_NEXT_VERSION(PyInterpreterState_Get()) | (d->ma_version_tag & DICT_WATCHER_AND_MODIFICATION_MASK);
    }
    return 0;
}

int dict_watch_init(void)
{
    fj_watcher = PyDict_AddWatcher(renew_version);
    if (fj_watcher < 0)
        PyErr_Clear();                    /* all taken: every lookup is done */
    else
        fj_watch_mark = (uint64_t)1 << fj_watcher;
    return 0;
}
#else
int dict_watch_init(void)
{
    return 0;
}
#endif
