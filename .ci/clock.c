// Shifts the wall clock of a process by CLOCK_SHIFT_DAYS days, for `.ci/nightly`: no test may depend on the day.
// Preloaded (LD_PRELOAD); programs that the process starts inherit it. The monotonic clock stays as it is.
// Not shifted: times that the kernel writes itself, such as a file's. A wait until a wall-clock time is one of
// the kernel's, too, and is shifted back.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
  const char *days = getenv("CLOCK_SHIFT_DAYS");
  return days ? atol(days) * 86400L : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  int answer = (int)syscall(SYS_clock_gettime, clock, at);
  if (answer == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    at->tv_sec += shift();
  return answer;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  int answer = (int)syscall(SYS_gettimeofday, at, zone);
  if (answer == 0) at->tv_sec += shift();
  return answer;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
  struct timespec real = *until;
  if (clock == CLOCK_REALTIME && (flags & TIMER_ABSTIME)) real.tv_sec -= shift();
  return syscall(SYS_clock_nanosleep, clock, flags, &real, left) == 0 ? 0 : errno;
}

// A condition is waited for by the wall clock, where nothing else is said (MariaDB does). Nobody's monotonic clock
// has run for the 30 years that tell the two apart.
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
  static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
  struct timespec shifted = *until;
  if (shifted.tv_sec > 1000000000) shifted.tv_sec -= shift();
  return real(condition, mutex, &shifted);
}
