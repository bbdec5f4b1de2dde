/* The symbols that are looked up in torch's libraries, all in one table: each may be missing in a torch to come, and
 * has something in its place. */
#ifndef FRAMEJIT_TORCH_SYMBOLS_H
#define FRAMEJIT_TORCH_SYMBOLS_H
#include "native.h"

#pragma GCC visibility push(hidden)

extern unsigned fj_symbols_generation;     /* grows when what was looked up has to be looked up again; from 1 */
void *torch_symbol(const char *name);     /* NULL where no library that torch has loaded exports it */
int torch_symbols_init(PyObject *module);

#pragma GCC visibility pop
#endif
