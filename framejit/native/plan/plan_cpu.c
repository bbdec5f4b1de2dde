/* Running a CPU kernel: in this thread, or split among the threads of torch's own OpenMP team. */
#include "plan/plan.h"

typedef struct {
    const CpuStep *step;
    char *const *pointers;
} Work;

/* The runtime may give fewer threads than it was asked for (inside another parallel region: one), so each works out its
 * share here. */
static void run_share(void *data)
{
    const Work *work = data;
    const CpuStep *step = work->step;
    int64_t team = fj_shim.team_size(), number = fj_shim.thread_number();
    int64_t share = step->total / team, longer = step->total % team;
    int64_t begin = number * share + (number < longer ? number : longer);
    step->kernel(work->pointers, step->ints, begin, begin + share + (number < longer));
}

void run_cpu(const CpuStep *step, char *const *pointers)
{
    if (FJ_UNLIKELY(step->total == 0))
        return;
    if (step->total < 2 * step->grain) {
        step->kernel(pointers, step->ints, 0, step->total);
        return;
    }
    int64_t most = step->total / step->grain;
    int threads = fj_shim.parallel ? fj_shim.get_num_threads() : 1;
    PyThreadState *ts = PyEval_SaveThread();
    threads = threads < most ? threads : (int)most;
    if (threads > 1) {
        Work work = {step, pointers};
        fj_shim.parallel(run_share, &work, (unsigned)threads, 0);
    }
    else
        step->kernel(pointers, step->ints, 0, step->total);
    PyEval_RestoreThread(ts);
}
