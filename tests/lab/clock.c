/* A wall clock that is ahead or behind: loaded into every process of a lab's host whose clock was set.
 *
 * What asks for the time gets another. What waits until a time, by the wall clock, waits as long as it meant to. Clocks
 * that only run (CLOCK_MONOTONIC) are left alone; so are the times of files, which the kernel writes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifndef AHEAD_MS
#error "cc -DAHEAD_MS=…"
#endif
#define SINCE_1970 1000000000 /* seconds: nothing that runs since it was switched on says so many */
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_wall(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

static struct timespec moved(struct timespec at, long ms) {
    long long ns = at.tv_nsec + (long long)(ms % 1000) * 1000000;
    at.tv_sec += ms / 1000 + (ns >= 1000000000) - (ns < 0);
    at.tv_nsec = ns + (ns < 0 ? 1000000000 : ns >= 1000000000 ? -1000000000 : 0);
    return at;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int rc = syscall(SYS_clock_gettime, clock, now);
    if (rc == 0 && is_wall(clock)) *now = moved(*now, AHEAD_MS);
    return rc;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec at;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &at);
    now->tv_sec = at.tv_sec;
    now->tv_usec = at.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return now ? (*now = at.tv_sec) : at.tv_sec;
}

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until) {
    struct timespec at = is_wall(clock) ? moved(*until, -(AHEAD_MS)) : *until;
    return REAL(pthread_cond_clockwait)(cond, mutex, clock, &at);
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    clockid_t clock = until->tv_sec > SINCE_1970 ? CLOCK_REALTIME : CLOCK_MONOTONIC; /* the condition's own, unasked */
    return pthread_cond_clockwait(cond, mutex, clock, until);
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until) {
    struct timespec at = moved(*until, -(AHEAD_MS));
    return REAL(pthread_mutex_clocklock)(mutex, CLOCK_REALTIME, &at);
}

int sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *until) {
    struct timespec at = is_wall(clock) ? moved(*until, -(AHEAD_MS)) : *until;
    return REAL(sem_clockwait)(sem, clock, &at);
}

int sem_timedwait(sem_t *sem, const struct timespec *until) { return sem_clockwait(sem, CLOCK_REALTIME, until); }

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *span, struct timespec *rest) {
    struct timespec at = flags & TIMER_ABSTIME && is_wall(clock) ? moved(*span, -(AHEAD_MS)) : *span;
    return REAL(clock_nanosleep)(clock, flags, &at, rest);
}

/* Ray's locks (absl) wait in the kernel without the library between. */
long syscall(long number, ...) {
    static __typeof__(&syscall) real;
    long a[6];
    struct timespec at;
    va_list list;
    if (!real) real = (__typeof__(&syscall))dlsym(RTLD_NEXT, "syscall");
    va_start(list, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_futex && (a[1] & FUTEX_CLOCK_REALTIME) && a[3]) {
        at = moved(*(struct timespec *)a[3], -(AHEAD_MS));
        a[3] = (long)&at;
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
