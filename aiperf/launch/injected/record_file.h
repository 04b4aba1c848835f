/* The file that an injected library leaves of its process: written beside its place and renamed, so never half there.

   It exists from the start with "complete 0": a process that ends without its last records can be told from one that
   never came here. The folder is named by AIPERF_RECORDS. */
#ifndef AIPERF_RECORD_FILE_H
#define AIPERF_RECORD_FILE_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pid_t aiperf_pid;
static void aiperf_last_words(void);
static int aiperf_done;

static void aiperf_write(const char *kind, void (*body)(FILE *), int complete) {
  const char *folder = getenv("AIPERF_RECORDS");
  char path[4096], part[4112];
  if (!folder || snprintf(path, sizeof path, "%s/%s-%d.tsv", folder, kind, (int)aiperf_pid) >= (int)sizeof path) return;
  snprintf(part, sizeof part, "%s.part", path);
  FILE *file = fopen(part, "w");
  if (!file) return;
  fprintf(file, "aiperf-records\t1\t%s\npid\t%d\ncomplete\t%d\n", kind, (int)aiperf_pid, complete);
  char program[4096];
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length > 0) { program[length] = 0; fprintf(file, "program\t%s\n", program); }
  if (body) body(file);
  int bad = ferror(file);
  if (fclose(file) || bad || rename(part, path)) unlink(part);
}

static void aiperf_finish(void) {
  /* A forked child has its parent's memory: what is counted there is the parent's. */
  if (aiperf_done || getpid() != aiperf_pid) return;
  aiperf_done = 1;
  aiperf_last_words();
}

static void aiperf_terminated(int number) {
  /* Whoever ends its helpers by SIGTERM still wants their numbers; should that hang, the alarm ends the process. */
  signal(number, SIG_DFL);
  signal(SIGALRM, SIG_DFL);
  alarm(5);
  aiperf_finish();
  raise(number);
}

static void aiperf_begin(void) {
  struct sigaction former;
  aiperf_pid = getpid();
  atexit(aiperf_finish);
  if (!sigaction(SIGTERM, NULL, &former) && !(former.sa_flags & SA_SIGINFO) && former.sa_handler == SIG_DFL)
    signal(SIGTERM, aiperf_terminated);
}

#endif
