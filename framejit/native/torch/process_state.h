/* What torch and the program keep for the whole process, and what a captured operation means depends on: the level of
 * forward-mode differentiation, and the methods of torch.Tensor, which a program may replace. */
#ifndef FRAMEJIT_PROCESS_STATE_H
#define FRAMEJIT_PROCESS_STATE_H
#include "cpython/dict_watch.h"
#include "native.h"

typedef struct {
    /* torch.nn.Parameter: its version changes with its own methods and with those of torch.Tensor */
    PyTypeObject *watched;
    PyObject *level_dict;                 /* of the module that counts the levels of forward-mode differentiation */
    unsigned tag;                         /* the version of `watched` for which `methods` was found; 0: none */
    uint32_t methods;                     /* a number for the methods as they are */
    const DictRecord *level_record;       /* of `level_dict`, and its version for which `level` was found */
    uint64_t level_version;
    int level;                            /* -1: no forward-mode differentiation */
} ProcessState;

#pragma GCC visibility push(hidden)
extern ProcessState fj_process;
void process_state_find_methods(void);
void process_state_find_level(void);
int process_state_init(PyObject *module);
#pragma GCC visibility pop

static inline uint32_t tensor_methods_now(void)
{
    if (FJ_UNLIKELY(fj_process.watched == NULL))
        return 0;
    if (FJ_UNLIKELY(fj_process.watched->tp_version_tag != fj_process.tag || fj_process.tag == 0))
        process_state_find_methods();
    return fj_process.methods;
}

static inline int forward_level_now(void)
{
    if (FJ_UNLIKELY(fj_process.level_dict == NULL))
        return -1;
    if (FJ_UNLIKELY(!dict_is_at(fj_process.level_dict, fj_process.level_record, fj_process.level_version)))
        process_state_find_level();
    return fj_process.level;
}

#endif
