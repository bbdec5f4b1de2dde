/* Warnings of torch's operations while a plan runs: they become Python's, as under torch's own bindings. */
#ifndef FJ_TORCH_WARNINGS_H
#define FJ_TORCH_WARNINGS_H
#include "native.h"

typedef struct TorchWarning TorchWarning;

/* Laid out as C++ lays out a c10::WarningHandler; torch calls it through its table. */
typedef struct {
    void *const *table;
    void *previous;
    TorchWarning *first, **last;
} WarningScope;

extern unsigned long fj_warnings_given;            /* so many warnings were given to Python; the GIL guards it */

void torch_warnings_load(void);                     /* once torch was imported */
void warnings_begin(WarningScope *scope);
/* While this is open, warnings that are shown count as given, whoever gave them: from torch 2.15 on, operators that are
 * called from Python give theirs. */
void warnings_count_begin(void);
void warnings_count_end(void);
int warnings_end(WarningScope *scope);  /* gives what was kept; -1: a filter of the program made one an exception */

#endif
