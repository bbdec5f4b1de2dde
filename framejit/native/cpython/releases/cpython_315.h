/* The internals of CPython 3.15, which are those of 3.14 as far as we read them; see compat.h. */
#include "cpython/releases/cpython_314.h"
