/* Stands for libcupti where there is no GPU: hands over the records of a small scene when it is flushed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define AIPERF_LAYOUT_ONLY
#include "gpu_time.c"

static void (*request)(uint8_t **, size_t *, size_t *);
static void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);
static void (*call)(void *, int32_t, uint32_t, const void *);
static int enabled[64];

static const char *scene(void) { return getenv("STUB_SCENE") ? getenv("STUB_SCENE") : ""; }

int cuptiGetVersion(uint32_t *version) { *version = 99; return 0; }
int cuptiActivityRegisterCallbacks(void *r, void *c) { request = r; complete = c; return !strcmp(scene(), "refused") * 15; }
int cuptiActivityEnable(uint32_t kind) { enabled[kind] = 1; return 0; }
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) {
  (void)context; (void)stream;
  *dropped = !strcmp(scene(), "dropped") ? 3 : 0;
  return 0;
}
int cuptiSubscribe(void **subscriber, void *callback, void *user) {
  (void)user;
  *subscriber = &call;
  call = callback;
  return 0;
}
int cuptiEnableCallback(uint32_t on, void *subscriber, uint32_t domain, uint32_t id) {
  (void)on; (void)subscriber; (void)domain; (void)id;
  return 0;
}

typedef struct { uint8_t *buffer; size_t used; } Buffer;
enum { RECORD = 160 };

static void *add(Buffer *to, uint32_t kind) {
  Record *record = (Record *)(to->buffer + to->used);
  to->used += RECORD;
  memset(record, 0, RECORD);
  record->kind = kind;
  return record;
}

/* A percent at the most, another one in each process, where it is asked for. */
static uint64_t scatter(uint64_t length) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return getenv("STUB_SCATTER") ? length * (now.tv_nsec / 1000 % 100) / 10000 : 0;
}

static void kernel(Buffer *to, uint32_t device, uint64_t start, uint64_t end, const char *name) {
  KernelRecord *record = add(to, KIND_KERNEL);
  record->device = device;
  record->start = start;
  record->end = end + scatter(end - start);
  record->name = name;
}

static void copy(Buffer *to, uint32_t kind, uint8_t direction, uint64_t bytes, uint64_t start, uint64_t end) {
  CopyRecord *record = add(to, kind);
  record->copy = direction;
  record->bytes = bytes;
  record->start = start;
  record->end = end;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, Record **record) {
  uint8_t *next = *record ? (uint8_t *)*record + RECORD : buffer;
  *record = (Record *)next;
  return next < buffer + valid ? 0 : 12;
}

static void launch(const char *runtime, const char *driver, int code) {
  Call outer = {0, runtime, NULL, &code, NULL, NULL}, inner = {0, driver, NULL, &code, NULL, NULL};
  call(NULL, DOMAIN_RUNTIME, 211, &outer);
  call(NULL, DOMAIN_DRIVER, 307, &inner);
  inner.site = outer.site = 1;
  call(NULL, DOMAIN_DRIVER, 307, &inner);
  call(NULL, DOMAIN_RUNTIME, 211, &outer);
}

int cuptiActivityFlushAll(uint32_t flag) {
  static int flushed;
  Buffer to = {NULL, 0};
  size_t size = 0, most = 0;
  if (flushed++ || !enabled[KIND_KERNEL]) return 0;
  (void)flag;
  request(&to.buffer, &size, &most);
  if (!strcmp(scene(), "many")) {
    /* More spans than are kept open: two overlapping kernels of 2 us every 4 us, the later one first. */
    for (int i = 0; i < 100000; i++) {
      kernel(&to, 0, 5001000 + 4000ull * i, 5003000 + 4000ull * i, "tick");
      kernel(&to, 0, 5000000 + 4000ull * i, 5002000 + 4000ull * i, "tick");
      if (to.used > size - 4 * RECORD) {
        complete(NULL, 0, to.buffer, size, to.used);
        to.used = 0;
        request(&to.buffer, &size, &most);
      }
    }
  } else if (strcmp(scene(), "none")) {
    kernel(&to, 0, 1000000, 1400000, "_Z6matmulPKfPf");
    kernel(&to, 0, 1300000, 1500000, "_Z6matmulPKfPf");
    kernel(&to, 0, 2000000, 2100000, "scale");
    kernel(&to, 1, 1000000, 1010000, "scale");
    copy(&to, KIND_MEMCPY, 1, 4096, 500000, 600000);
    copy(&to, KIND_MEMCPY, 2, 1024, 2200000, 2210000);
    copy(&to, KIND_MEMCPY_PEER, 10, 512, 2200000, 2205000);
    FillRecord *fill = add(&to, KIND_MEMSET);
    fill->bytes = 64;
    fill->start = 400000;
    fill->end = 401000;
    for (int i = 0; i < 4; i++) launch("cudaLaunchKernel", "cuLaunchKernel", 0);
  }
  if (!strcmp(scene(), "zero")) kernel(&to, 0, 2500000, 2500000, "persistent");
  if (!strcmp(scene(), "refused launch")) launch("cudaLaunchKernel", "cuLaunchKernel", 701);
  if (!strcmp(scene(), "graph")) {
    launch("cudaLaunchKernel", "cuLaunchKernel", 0);
    launch("cudaLaunchKernel", "cuLaunchKernel", 0);
    launch("cudaGraphLaunch", "cuGraphLaunch", 0);
  }
  if (!strcmp(scene(), "missing")) launch("cudaLaunchKernel", "cuLaunchKernel", 0);
  complete(NULL, 0, to.buffer, size, to.used);
  return 0;
}
