/* Stands for a program that uses a GPU: does what the driver does with CUDA_INJECTION64_PATH, then ends as it is told. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int use_gpu(void) {
  void *library = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW);
  int (*begin)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
  if (!begin) { fprintf(stderr, "%s\n", dlerror()); return 3; }
  return begin() == 1 ? 0 : 4;
}

int main(int count, char **words) {
  const char *how = count > 1 ? words[1] : "exit";
  if (!strcmp(how, "idle")) return 0;
  if (!strcmp(how, "children")) {
    /* Two processes of their own, one after the other; the parent uses no GPU. */
    for (int i = 0; i < 2; i++) {
      pid_t child = fork();
      if (!child) execl(words[0], words[0], "exit", (char *)0);
      waitpid(child, NULL, 0);
    }
    return 0;
  }
  int code = use_gpu();
  if (!strcmp(how, "_exit")) _exit(0);
  if (!strcmp(how, "terminated")) { pid_t child = getpid(); (void)child; raise(SIGTERM); }
  if (!strcmp(how, "forks")) {
    pid_t child = fork();
    if (!child) exit(0);
    waitpid(child, NULL, 0);
  }
  return code;
}
