// pair: two threads at the same time, `still`, which calls quiet, and `busy`, which calls faulting and then calling, in
// rounds. The functions are those of rates.inc.
#define _GNU_SOURCE
#include <pthread.h>

void quiet(void);
void faulting(void);
void calling(void);

static void *still(void *unused)
{
    pthread_setname_np(pthread_self(), "still");
    for (int i = 0; i < ROUNDS; i++)
        quiet();
    return unused;
}

static void *busy(void *unused)
{
    pthread_setname_np(pthread_self(), "busy");
    for (int i = 0; i < ROUNDS; i++) {
        faulting();
        calling();
    }
    return unused;
}

int main(void)
{
    pthread_t threads[2];
    if (pthread_create(&threads[0], 0, still, 0) != 0 || pthread_create(&threads[1], 0, busy, 0) != 0)
        return 1;
    pthread_join(threads[0], 0);
    pthread_join(threads[1], 0);
    return 0;
}
