/* CPython 3.12 and 3.13 charge each evaluation of a frame from C against a small allowance; see c_stack.h. */
enum { EVALUATION_UNITS = 2 };
static inline void c_recursion_give(PyThreadState *ts) { ts->c_recursion_remaining += EVALUATION_UNITS; }
static inline void c_recursion_take(PyThreadState *ts) { ts->c_recursion_remaining -= EVALUATION_UNITS; }
static inline PyThreadState *counting_thread(void) { return PyThreadState_Get(); }
static inline long c_recursion_left(PyThreadState *ts) { return ts->c_recursion_remaining; }
static inline int c_recursion_charge_is(long units) { return units >= 0 && units <= 2 * EVALUATION_UNITS; }
/* A call of a C function with one argument is charged against the same allowance. */
static inline void c_call_give(void) { PyThreadState_Get()->c_recursion_remaining++; }
static inline void c_call_take(void) { PyThreadState_Get()->c_recursion_remaining--; }
