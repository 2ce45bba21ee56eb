/* What several actions need: other processes, descriptors and shared mappings of this one, and Python in it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <limits.h>
#include <mqueue.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The parent of a process; 0 if there is none that can be seen. */
static pid_t parent_of(pid_t pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/status", pid);
  FILE* file = fopen(path, "r");
  int parent = 0;
  while (file && fgets(text, sizeof text, file)) {
    if (sscanf(text, "PPid: %d", &parent) == 1) break;
  }
  if (file) fclose(file);
  return parent;
}
/* Does something to this process' parent, the parent's parent, and so on, but not to process 1. */
static void each_ancestor(void (*act)(pid_t)) {
  for (pid_t pid = getppid(); pid > 1; pid = parent_of(pid)) act(pid);
}
/* Does something to each descriptor but the three standard ones. */
static void each_descriptor(void (*act)(int)) {
  for (int fd = 3; fd < 1024; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) act(fd);
  }
}
/* Does something to each shared mapping that can be written. */
static void each_shared_mapping(void (*act)(char*, size_t)) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[4096], rights[8];
  unsigned long begin[256], end[256];
  int count = 0;
  while (maps && count < 256 && fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%lx-%lx %7s", &begin[count], &end[count], rights) != 3) continue;
    count += rights[1] == 'w' && rights[3] == 's';
  }
  if (maps) fclose(maps);
  for (int i = 0; i < count; ++i) act((char*)begin[i], end[i] - begin[i]);
}
/* Runs Python in this process, if there is one. */
static void python(const char* code) {
  int (*ensure)(void) = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
  void (*release)(int) = dlsym(RTLD_DEFAULT, "PyGILState_Release");
  int (*run)(const char*) = dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
  if (!ensure || !release || !run) return;
  int state = ensure();
  run(code);
  release(state);
}
static void set_limit(int which, rlim_t value) {
  struct rlimit limit = {value, value};
  setrlimit(which, &limit);
}
/* A process of its own session, without parent, environment and descriptors. */
static int is_daemon(void) {
  pid_t pid = fork();
  if (pid) {
    if (pid > 0) waitpid(pid, NULL, 0);
    return 0;
  }
  setsid();
  if (fork()) _exit(0);
  clearenv();
  for (int fd = 0; fd < 1024; ++fd) close(fd);
  return 1;
}
/* Writes a file of so many bytes. */
static void write_file(const char* path, size_t size) {
  int fd = open(path, O_CREAT | O_WRONLY, 0600);
  if (fd < 0) return;
  static char zeros[1 << 16];
  for (size_t written = 0; written < size; written += sizeof zeros) {
    if (write(fd, zeros, size - written < sizeof zeros ? size - written : sizeof zeros) < 0) break;
  }
  close(fd);
}
/* The path of this library. */
static const char* own_path(void) {
  Dl_info info;
  return dladdr((void*)own_path, &info) ? info.dli_fname : "";
}
