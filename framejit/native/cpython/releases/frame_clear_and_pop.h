/* Getting rid of a frame that was pushed and never started, from CPython 3.13 on, which exports the means for it. */
extern void _PyEval_FrameClearAndPop(PyThreadState *, _PyInterpreterFrame *);
static inline void frame_dispose(PyThreadState *ts, _PyInterpreterFrame *frame)
{
    SavedError error = error_save();
    _PyEval_FrameClearAndPop(ts, frame);
    error_restore(error);
}
