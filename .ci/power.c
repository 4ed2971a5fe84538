// Records what a process writes into its database files, for `.ci/power`, which plays power cuts with the record.
// Preloaded (LD_PRELOAD). POWER_LOG names the record; files whose name holds POWER_FILE are recorded.
// An entry: one letter (W write, T truncate, S sync, U unlink), then file name length, name, offset, length, bytes.
// A write and a truncation are recorded before they are carried out, a sync after it has returned.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int record = -1;

// The name of an open file, if it is one that is recorded: its last part, else NULL.
static const char *recorded(int fd, char *path, size_t room) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, room - 1);
  if (length <= 0) return NULL;
  path[length] = 0;
  const char *last = strrchr(path, '/'), *wanted = getenv("POWER_FILE");
  last = last ? last + 1 : path;
  return wanted && strstr(last, wanted) && !strstr(last, "-shm") ? last : NULL;
}

static void note(char what, const char *name, uint64_t at, const void *bytes, uint64_t length) {
  uint64_t head[3] = {strlen(name), at, length};
  struct iovec parts[4] = {{&what, 1}, {head, sizeof head}, {(void *)name, head[0]}, {(void *)bytes, bytes ? length : 0}};
  pthread_mutex_lock(&lock);
  if (record < 0) record = open(getenv("POWER_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  ssize_t whole = (ssize_t)(1 + sizeof head + head[0] + (bytes ? length : 0));
  if (writev(record, parts, 4) != whole) abort();
  pthread_mutex_unlock(&lock);
}

#define REAL(name) \
  static __typeof__(&name) real; \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
  REAL(pwrite64);
  char path[4096];
  const char *name = recorded(fd, path, sizeof path);
  if (name) note('W', name, (uint64_t)at, bytes, length);
  return real(fd, bytes, length, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) { return pwrite64(fd, bytes, length, at); }

int ftruncate64(int fd, off64_t length) {
  REAL(ftruncate64);
  char path[4096];
  const char *name = recorded(fd, path, sizeof path);
  if (name) note('T', name, 0, NULL, (uint64_t)length);
  return real(fd, length);
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

int fdatasync(int fd) {
  REAL(fdatasync);
  char path[4096];
  const char *name = recorded(fd, path, sizeof path);
  int answer = real(fd);
  if (name && answer == 0) note('S', name, 0, NULL, 0);
  return answer;
}

int fsync(int fd) {
  REAL(fsync);
  char path[4096];
  const char *name = recorded(fd, path, sizeof path);
  int answer = real(fd);
  if (name && answer == 0) note('S', name, 0, NULL, 0);
  return answer;
}

int unlink(const char *path) {
  REAL(unlink);
  const char *last = strrchr(path, '/'), *wanted = getenv("POWER_FILE");
  last = last ? last + 1 : path;
  if (wanted && strstr(last, wanted) && !strstr(last, "-shm")) note('U', last, 0, NULL, 0);
  return real(path);
}
