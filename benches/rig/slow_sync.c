// Makes each sync of a process take SYNC_DELAY_MS longer, as a card's or an old disk's does, for `slow_disk`.
// Preloaded (LD_PRELOAD). What is written is synced first, by the real call.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void delay(void) {
  const char *ms = getenv("SYNC_DELAY_MS");
  long span = ms ? atol(ms) : 0;
  struct timespec left = {span / 1000, span % 1000 * 1000000L};
  while (nanosleep(&left, &left) != 0) continue;
}

#define SLOW(name) \
  int name(int fd) { \
    static int (*real)(int); \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name); \
    int answer = real(fd); \
    delay(); \
    return answer; \
  }

SLOW(fsync)
SLOW(fdatasync)
