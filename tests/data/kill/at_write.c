// Ends a process at its n-th write to a file, for `tests/fault/effects.rs`. Preloaded (LD_PRELOAD).
// KILL_AT is n; counting begins when the file KILL_ARMED exists. Only the program `oncebox` counts, not its commands, and
// not what it writes to a terminal, a pipe, a socket or its log.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static long passed;

// The process is ended before the write that is the n-th.
static void count(void) {
  const char *armed = getenv("KILL_ARMED"), *at = getenv("KILL_AT");
  if (!armed || !at || strcmp(program_invocation_short_name, "oncebox")) return;
  int before = errno;
  if (access(armed, F_OK) == 0 && __sync_add_and_fetch(&passed, 1) == atol(at)) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }
  errno = before;
}

static void count_file(int fd) {
  struct stat found;
  if (fd > 2 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode)) count();
}

#define REAL(name) \
  static __typeof__(&name) real; \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
  REAL(pwrite64);
  count_file(fd);
  return real(fd, bytes, length, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) { return pwrite64(fd, bytes, length, at); }

ssize_t write(int fd, const void *bytes, size_t length) {
  REAL(write);
  count_file(fd);
  return real(fd, bytes, length);
}

int rename(const char *from, const char *to) {
  REAL(rename);
  count();
  return real(from, to);
}

int unlink(const char *path) {
  REAL(unlink);
  count();
  return real(path);
}
