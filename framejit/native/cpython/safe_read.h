/* Reading memory that may not be there, for the checks of where others keep what. */
#ifndef FRAMEJIT_SAFE_READ_H
#define FRAMEJIT_SAFE_READ_H
#include <stddef.h>

#pragma GCC visibility push(hidden)
int safe_read(const void *where, void *to, size_t n);      /* whether the n bytes (at most 4096) could be read */
#pragma GCC visibility pop
#endif
