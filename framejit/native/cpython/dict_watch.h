/* Knowing that a dictionary is as it was without looking into it: whoever read it keeps its record and the version it
 * had.
 *
 * CPython 3.11 numbers the versions of a dictionary in the dictionary itself; there that is the record. Later releases
 * tell a watcher of each change (PyDict_Watch), and ours renews the version of a record of its own. Versions are unique
 * in the process. A record is never given back, only used again for another dictionary, so that its version may be read
 * at any time, whatever became of the dictionary.
 *
 * Where the dictionary of an instance shares the values in it, whoever reads an attribute may compare the value's place
 * instead, and does so for dictionaries that change again and again, lest one attribute that is written at each call
 * costs what was read of the others.
 *
 * One watcher serves everything; there are eight in a process for all who want one. Types and functions need none: a
 * type has a version, and what is read of a function lies in the function. Where no watcher is left, no dictionary has
 * a record, and what was read is compared each time. */
#ifndef FRAMEJIT_DICT_WATCH_H
#define FRAMEJIT_DICT_WATCH_H
#include "cpython/compat.h"

#define NO_VERSION UINT64_MAX

#ifdef FJ_DICT_NUMBERS
typedef PyDictObject DictRecord;
#define fj_no_record ((const DictRecord *)NULL)
static inline const uint64_t *record_word(const DictRecord *record) { return &record->ma_version_tag; }
static inline const void *dict_of_record_word(const uint64_t *word)
{
    return (const char *)word - offsetof(PyDictObject, ma_version_tag);
}
static inline int dict_is_at(PyObject *dict, const DictRecord *record, uint64_t version)
{
    (void)record;                         /* of the dictionary at the time: it need not exist any more */
    return ((PyDictObject *)dict)->ma_version_tag == version;
}
static inline const DictRecord *dict_record(PyObject *dict) { return (const DictRecord *)dict; }
/* No change is told to anybody: the versions have to be compared. */
#define DICT_EPOCHS 0
static inline uint64_t dict_epoch(void) { return 0; }
static inline int dict_epoch_is(uint64_t epoch) { (void)epoch; return 0; }
#else
typedef struct DictRecord {
    uint64_t version;
    PyObject *dict;                       /* compared only; NULL once it is gone */
    struct DictRecord *next;              /* in the same bucket, or among the free ones */
    unsigned unread;                      /* changes since anybody asked for the record */
    char watched;
    unsigned char renewals;               /* how often it had changed when somebody asked for the record again */
} DictRecord;

#pragma GCC visibility push(hidden)
extern const DictRecord fj_no_dict;
extern uint64_t fj_dict_epoch;            /* the latest version of any dictionary */
const DictRecord *dict_record(PyObject *dict);
#pragma GCC visibility pop

#define fj_no_record (&fj_no_dict)
static inline const uint64_t *record_word(const DictRecord *record) { return &record->version; }
static inline const void *dict_of_record_word(const uint64_t *word)
{
    return ((const DictRecord *)((const char *)word - offsetof(DictRecord, version)))->dict;
}
static inline int dict_is_at(PyObject *dict, const DictRecord *record, uint64_t version)
{
    return record->version == version && record->dict == dict;
}
/* A number that changes whenever any dictionary with a record does. */
#define DICT_EPOCHS 1
static inline uint64_t dict_epoch(void) { return fj_dict_epoch; }
static inline int dict_epoch_is(uint64_t epoch) { return fj_dict_epoch == epoch; }
#endif

/* dict_record(dict): its record, or fj_no_record where there is none to be had. The version to keep with it: */
static inline uint64_t record_version(const DictRecord *record)
{
    return record == fj_no_record ? NO_VERSION : *record_word(record);
}

int dict_watch_init(PyObject *module) __attribute__((visibility("hidden")));
#endif
