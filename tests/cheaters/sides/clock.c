/* A library for LD_PRELOAD under which every clock of the program goes slower: three quarters of the true time.
 * What must not live here: anything but the clock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

typedef int (*reader)(clockid_t, struct timespec *);

static long long nanoseconds(const struct timespec *time) {
    return time->tv_sec * 1000000000LL + time->tv_nsec;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static reader real;
    static long long start[16];
    if (!real) real = (reader)dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, time);
    if (answer || clock < 0 || clock >= 16 || clock == CLOCK_REALTIME) return answer;
    long long now = nanoseconds(time);
    if (!start[clock]) start[clock] = now;
    now = start[clock] + (now - start[clock]) * 3 / 4;
    time->tv_sec = now / 1000000000LL;
    time->tv_nsec = now % 1000000000LL;
    return answer;
}
